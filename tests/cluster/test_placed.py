"""A run that executes a plan is the run of one process, bit for bit; calls on processes of their own go on together."""

import importlib.util
import json
import os
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from posttrain.cli import main
from posttrain.cluster._placed import PlacedSession, PlacedWorkers
from posttrain.cluster._placement import Busy
from posttrain.cluster._weights import Sent, size_of
from posttrain.cluster.placed import Placed
from posttrain.cluster.planning.calls import Call, Candidate, cost
from posttrain.cluster.planning.profiles import best_plans, placed_recipe, read_profile
from posttrain.component.user_code import allowing
from posttrain.engines.native import Native
from posttrain.errors import RunFailed, UserError
from posttrain.policies.folder import new_folder
from posttrain.policies.loading import load_policy
from posttrain.recipes.files import find_recipe
from posttrain.recipes.overrides import to_tree
from posttrain.recipes.tree import Checkpoints, Recipe
from posttrain.runs import profiling
from posttrain.runs.launch import resume, start
from posttrain.runs.live import LiveView
from posttrain.runs.store import RunStore
from tests.cluster.running import on, outcome, run, scored, small

needs_ray = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed")
CALLS = {
    "generate policy": (0, 1),
    "score reference": (1,),
    "score critic": (0,),
    "train policy": (0,),
    "train critic": (1,),
}


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return new_folder(tmp_path_factory.mktemp("models") / "tiny", layers=2, width=16, heads=2, kv_heads=1, context=512)


@pytest.fixture(scope="module")
def session() -> Iterator[Any]:
    from posttrain.cluster._opened import opened

    torch.set_num_threads(1)
    with opened(
        Placed(processes=3, calls=CALLS, cpus=0.5, timeout=60.0), Native(slots=16), 0, PlacedSession
    ) as session:
        yield session


@needs_ray
@pytest.mark.slow
@pytest.mark.parametrize("name", ["ppo", "kdrl", "tango", "chord"])
def test_a_recipe_on_a_placement_is_that_of_one_process(
    name: str, tiny: Path, session: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Updates of two roles, references, and models that are compared with, some named in the placement."""
    recipe = small(name, tiny)
    alone = run(recipe, tmp_path / "local")
    on(session, monkeypatch)
    assert run(recipe, tmp_path / "ray") == alone


APART = {
    "generate policy": (0, 2),
    "score reference": (0, 2),
    "score critic": (0, 1),
    "train policy": (0, 1),
    "train critic": (1, 2),
}
TOGETHER = {"score reference": (2,), "score critic": (0, 1), "train policy": (0, 1), "train critic": (0, 1)}


def sharded(session: Any, calls: Mapping[str, tuple[int, ...]], monkeypatch: pytest.MonkeyPatch) -> None:
    on(session, monkeypatch)
    monkeypatch.setattr(session, "calls", calls)
    monkeypatch.setattr(session, "settings", replace(session.settings, sharding="fsdp"))


@needs_ray
@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "calls"), [("ppo", APART), ("ppo", TOGETHER), ("kdrl", {}), ("tango", APART)], ids=str
)
def test_a_recipe_on_a_sharded_placement_is_that_of_one_process(
    name: str,
    calls: dict[str, tuple[int, ...]],
    tiny: Path,
    session: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each role is cut over processes of its own, some of them shared; no process but for the samplers has a whole
    copy of what is trained.
    """
    from posttrain.cluster._placed_parts import PlacedGang, PlacedParts

    recipe = scored(small(name, tiny), tmp_path) if name == "ppo" else small(name, tiny)
    alone = run(recipe, tmp_path / "local")
    sharded(session, calls, monkeypatch)
    given: set[tuple[str, str]] = set()
    publish, update, updated = session.publish, PlacedGang.update, list[str]()
    arrive, arrived = Sent.arrive, list[str]()

    def came(sent: Sent, policy: Any) -> None:
        arrive(sent, policy)
        arrived.append(policy.role)

    def published(policy: Any, use: Any, by: Any = None) -> Any:
        given.add((policy.role, use))
        return publish(policy, use, by)

    def counted(gang: PlacedGang, learner: Any, *arguments: Any) -> None:
        updated.append(learner.policy.role)
        update(gang, learner, *arguments)

    monkeypatch.setattr(session, "publish", published)
    monkeypatch.setattr(PlacedGang, "update", counted)
    monkeypatch.setattr(Sent, "arrive", came)
    monkeypatch.setattr(PlacedParts, "_fetch", None)
    assert run(recipe, tmp_path / "ray") == alone
    assert updated and sorted(arrived) == sorted(updated), "owners write into the buffer of the samplers themselves"
    if name == "ppo":
        assert set(updated) == {"policy", "critic"}
        whole = {("reference", "score")} if calls is TOGETHER else set()
        assert given == {("policy", "sample"), *whole}


@needs_ray
@pytest.mark.slow
def test_owners_on_other_machines_send_their_weights_in_pieces(
    tiny: Path, session: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from posttrain.cluster._placed_parts import PlacedParts

    recipe = scored(small("ppo", tiny), tmp_path)
    alone = run(recipe, tmp_path / "local")
    sharded(session, APART, monkeypatch)
    for member in session.samplers:
        monkeypatch.setattr(member, "is_near", False)
    fetch, fetched = PlacedParts._fetch, list[str]()

    def counted(parts: PlacedParts, name: str, policy: Any) -> None:
        fetch(parts, name, policy)
        fetched.append(policy.role)

    monkeypatch.setattr(PlacedParts, "_fetch", counted)
    assert run(recipe, tmp_path / "ray") == alone
    assert set(fetched) == {"policy", "critic"}


def stopped(recipe: Recipe, root: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run that broke off in its third step."""
    before = RunStore.log_metrics

    def log_metrics(store: Any, step: int, *arguments: Any) -> None:
        if step == 3:
            raise KeyboardInterrupt
        before(store, step, *arguments)

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(RunStore, "log_metrics", log_metrics)
        start(recipe, root, LiveView(lines=True))
    return next(root.iterdir())


@needs_ray
@pytest.mark.slow
def test_a_sharded_placement_resumes_and_is_resumed_elsewhere(
    tiny: Path, session: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the checkpoint of one process on a sharded placement, and from that in one process."""
    recipe = replace(scored(small("ppo", tiny), tmp_path, steps=4), checkpoints=Checkpoints(every_steps=2))
    alone = run(recipe, tmp_path / "local")
    folder = stopped(recipe, tmp_path / "one", monkeypatch)
    with monkeypatch.context() as patched, allowing(trust=True):
        sharded(session, APART, patched)
        resume(folder, LiveView(lines=True))
    assert outcome(folder) == alone
    with monkeypatch.context() as patched:
        sharded(session, APART, patched)
        folder = stopped(recipe, tmp_path / "sharded", monkeypatch)
    with allowing(trust=True):
        resume(folder, LiveView(lines=True))
    assert outcome(folder) == alone


@needs_ray
@pytest.mark.slow
def test_a_sharded_process_that_is_killed_ends_the_run_in_one_sentence(
    tiny: Path, session: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from posttrain.cluster._placed_parts import PlacedParts

    sharded(session, APART, monkeypatch)
    before, calls = PlacedParts.update, list[int]()

    def update(parts: PlacedParts, *arguments: Any) -> None:
        calls.append(1)
        if len(calls) == 2:
            os.kill(session.samplers[2].pid, signal.SIGKILL)
        before(parts, *arguments)

    monkeypatch.setattr(PlacedParts, "update", update)
    with pytest.raises(RunFailed, match=r"its part of the optimizer's state .* posttrain resume goes on"):
        run(small("ppo", tiny), tmp_path / "ray")


@needs_ray
@pytest.mark.slow
def test_each_process_has_the_models_of_its_calls_and_updates_go_on_together(
    tiny: Path, session: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    on(session, monkeypatch)
    given: set[tuple[str, int]] = set()
    begun = {"policy": threading.Event(), "critic": threading.Event()}
    give, before = session._give, PlacedWorkers._once

    def gave(policy: Any, version: Any, buffer: Any, members: Any, **named: Any) -> Any:
        given.update((policy.role, member.number) for member in members)
        return give(policy, version, buffer, members, **named)

    def once(workers: PlacedWorkers, learner: Any, *arguments: Any) -> Any:
        begun[learner.policy.role].set()
        assert all(event.wait(60) for event in begun.values()), "an update waits for the end of the other's"
        return before(workers, learner, *arguments)

    monkeypatch.setattr(session, "_give", gave)
    monkeypatch.setattr(PlacedWorkers, "_once", once)
    run(small("ppo", tiny), tmp_path / "ray")
    assert given == {("policy", 0), ("policy", 1), ("reference", 1), ("critic", 0), ("critic", 1)}


@needs_ray
@pytest.mark.slow
def test_a_process_that_is_killed_is_replaced_and_changes_nothing(
    tiny: Path, session: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = scored(small("grpo", tiny), tmp_path, steps=4)
    alone = run(recipe, tmp_path / "local")
    on(session, monkeypatch)
    before, calls = PlacedWorkers._once, list[int]()

    def once(workers: PlacedWorkers, *arguments: Any) -> Any:
        calls.append(1)
        if len(calls) == 2:
            os.kill(session.samplers[0].pid, signal.SIGKILL)
        return before(workers, *arguments)

    monkeypatch.setattr(PlacedWorkers, "_once", once)
    assert run(recipe, tmp_path / "ray") == alone
    assert "process 0" in (tmp_path / "ray" / "grpo-1" / "events.jsonl").read_text()


# Without Ray


def test_calls_with_a_process_in_common_wait_in_the_order_of_asking() -> None:
    """1 has process 0, 2 needs 0 and 1, 3 for 1: it could begin, and waits for 2; 4 on process 2 does not wait."""
    busy, order = Busy(), list[int]()
    first = threading.Event()

    def call(number: int, places: set[int], until: threading.Event | None = None) -> None:
        with busy.taken(places):
            order.append(number)
            if until is not None:
                until.wait(10)

    threads = []
    for number, places in ((1, {0}), (2, {0, 1}), (3, {1}), (4, {2})):
        threads.append(threading.Thread(target=call, args=(number, places, first if number == 1 else None)))
        threads[-1].start()
        while len(busy._waiting) + len(order) != number:
            time.sleep(0.001)
    threads[-1].join(10)
    assert order == [1, 4]
    first.set()
    for thread in threads:
        thread.join(10)
    assert order == [1, 4, 2, 3]


@pytest.mark.parametrize(
    ("calls", "message"),
    [
        ({"learn policy": [0]}, "'learn policy' is no call; write generate, score, train and a role"),
        ({"train": [0]}, "'train' is no call"),
        ({"train policy": [0, 2]}, r"train policy is on \[0, 2\]; name processes once each, from 0 to 1"),
        ({"train policy": []}, r"is on \[\]"),
        ({"train policy": [1, 1]}, r"is on \[1, 1\]"),
    ],
)
def test_impossible_placements_are_refused(calls: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        find_recipe("ppo", [f"cluster={json.dumps({'kind': 'placed', 'calls': calls})}"])


def test_a_placement_of_a_role_that_is_not_there_is_refused_before_anything_starts(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    call = "cluster={kind: placed, calls: {train critik: [0]}}"
    assert main(["run", "ppo", call, "--dry-run", "--runs", str(tmp_path)]) == 2
    assert "cluster.calls names the role 'critik'" in capsys.readouterr().err


def test_with_a_barrier_a_step_waits_for_all_updates_of_the_one_before() -> None:
    """Two steps of generate 2, then policy 1 beside critic 4: 12; without, generate waits for the policy alone."""
    calls = [
        Call(name="generate", model="policy", candidates=[where("0", 2.0)]),
        Call(name="policy", model="policy", candidates=[where("0", 1.0)], after=("generate",), trains=True),
        Call(name="critic", model="critic", candidates=[where("1", 4.0)], after=("generate",), trains=True),
    ]
    plan = {"generate": 0, "policy": 0, "critic": 0}
    assert cost(calls, plan, iterations=2, barrier=True) == 12.0
    assert cost(calls, plan, iterations=2) == 10.0


def where(devices: str, seconds: float) -> Candidate:
    return Candidate(devices=frozenset(map(int, devices)), seconds=seconds)


SECONDS = {
    "generate_policy": {1: 4.0, 2: 2.0},
    "score_critic": {1: 1.0, 2: 0.9},
    "score_reference": {1: 1.0, 2: 0.9},
    "train_policy": {1: 3.0, 2: 2.5},
    "train_critic": {1: 3.0, 2: 2.5},
}


def test_a_profile_is_measured_planned_and_becomes_a_recipe(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Symmetric on both: 2 + 0.9 * 2 + 2.5 * 2 + 0.5 = 9.3. Found: 2 + 1 + 3 + 0.5 = 6.5, and weights are moved in .1
    before the next step's: five steps are 5 * 6.5 + 4 * 0.1, since critic and policy are moved on processes of their
    own where one generates on both.
    """

    def measured(recipe: Any, cluster: Placed, steps: int) -> list[dict[str, float]]:
        size = len(cluster.calls["train policy"])
        row = {f"seconds_{name}": spent[size] for name, spent in SECONDS.items()}
        row |= {"seconds_total": sum(row.values()) + 0.5, "weight_bytes_policy": 100.0, "weight_bytes_critic": 100.0}
        row |= {"seconds_weights_policy": 0.1, "seconds_weights_critic": 0.1}
        return [{**row, "weight_bytes_reference": 100.0, "seconds_total": 50.0}, row, row]

    monkeypatch.setattr(profiling, "measured", measured)
    said: list[str] = []
    recipe = find_recipe("ppo")
    path = tmp_path / "profile.json"
    path.write_text(json.dumps(profiling.profile(recipe, 2, 3, said.append)))
    assert said[-1] == "processes 0, 1: 9.300 s a step"
    problem = read_profile(path)
    assert problem.other == pytest.approx(0.5)
    names = ["generate policy", "score critic", "score reference", "train policy", "train critic"]
    assert [call.name for call in problem.calls] == names
    assert problem.calls[2].candidates[0].static == 100
    found = best_plans(problem, seed=0, proposals=200)
    assert found["symmetric"]["seconds"] == pytest.approx(5 * 9.3)
    assert found["best"][0]["seconds"] == pytest.approx(5 * 6.5 + 4 * 0.1)
    calls = {name: own["devices"] for name, own in found["best"][0]["calls"].items()}
    assert calls["generate policy"] == [0, 1]
    assert sorted(calls["score critic"] + calls["score reference"]) == [0, 1]
    assert sorted(calls["train critic"] + calls["train policy"]) == [0, 1]
    assert main(["cluster", "plan", str(path), "--out", str(tmp_path / "plan.yaml")]) == 0
    placed = find_recipe(str(tmp_path / "plan.yaml"))
    assert placed.cluster == Placed(calls={name: tuple(devices) for name, devices in calls.items()})
    assert to_tree(replace(placed, cluster=recipe.cluster)) == to_tree(recipe)


@needs_ray
@pytest.mark.slow
def test_a_profile_of_sharded_calls_has_their_bytes_and_seconds_and_its_plan_is_sharded(
    tiny: Path, session: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 41,856 bytes a process has half where two score. Where two train, it has its rows, whole what it updates, and
    two moments of that: 4 x 41,856 / 2, but for what cannot be halved.
    """
    recipe = scored(small("ppo", tiny), tmp_path)
    rows = list[dict[str, Any]]()

    def measured(recipe: Recipe, cluster: Placed, steps: int) -> list[dict[str, Any]]:
        sharded(session, cluster.calls, monkeypatch)
        assert cluster.sharding == "fsdp" and session.take_timing() is not None
        folder, _ = start(recipe, tmp_path / str(len(rows)), LiveView(lines=True), most_steps=steps)
        with RunStore.open(folder) as store:
            found = [row for row in store.timing() if row.get("stage_step")]
        rows.extend(found)
        return found

    monkeypatch.setattr(profiling, "measured", measured)
    path = tmp_path / "profile.json"
    found = profiling.profile(recipe, 2, 3, lambda text: None, "fsdp")
    path.write_text(json.dumps(found))
    size = size_of(load_policy("policy", recipe.models["policy"], {}, torch.device("cpu")))
    calls = {(call["name"], len(own["devices"])): own for call in found["calls"] for own in call["candidates"]}
    assert calls["generate policy", 1]["static"] == calls["generate policy", 2]["static"] == size
    assert calls["train policy", 1]["static"] == calls["train policy", 1]["active"] == size
    two = calls["train policy", 2]
    assert 1.9 * size < two["static"] < 2.5 * size and 0.45 * size < two["active"] < 0.7 * size
    assert calls["score reference", 2]["static"] == -(-calls["score reference", 1]["static"] // 2) == -(-size // 2)
    handed = [row for row in rows if row.get("part_bytes_policy")]
    assert handed and all(row["seconds_weights_policy"] > 0 for row in handed)
    assert placed_recipe(path, {"calls": {"train policy": {"devices": [0, 1]}}})["cluster"] == {
        "kind": "placed",
        "processes": 2,
        "calls": {"train policy": [0, 1]},
        "sharding": "fsdp",
    }


def test_a_profile_that_was_not_measured_cannot_be_executed(tmp_path: Path) -> None:
    path = tmp_path / "profile.json"
    candidates = [{"devices": [0], "seconds": 1.0}]
    path.write_text(json.dumps({"calls": [{"name": "a", "model": "m", "candidates": candidates}]}))
    with pytest.raises(UserError, match="has no recipe to execute; measure it with posttrain cluster profile"):
        placed_recipe(path, best_plans(read_profile(path), seed=0, proposals=2)["best"][0])
