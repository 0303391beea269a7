"""Streaming: the quota, ages, equality with sampling step by step, resume, and the journal that gives the weights."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from posttrain.component.user_code import allowing
from posttrain.components.filters.zero_variance import ZeroVariance
from posttrain.components.rewards.function import Function
from posttrain.components.timetables.in_turn import InTurn
from posttrain.components.timetables.streaming import Streaming
from posttrain.engines import Sampling
from posttrain.errors import RunFailed, UserError
from posttrain.policies.folder import new_folder
from posttrain.recipes.tree import Recipe
from posttrain.runs.context import RunContext
from posttrain.runs.launch import start
from posttrain.runs.live import LiveView
from posttrain.runs.replaying import different_files, replay
from posttrain.runs.store import RunStore
from posttrain.stages.rl.ages import Staleness
from posttrain.stages.rl.refill import Refill
from tests.conformance.test_methods import run
from tests.stages.resuming import cut_off_and_resumed
from tests.stages.rl.test_ahead import recipe_with

LENGTHS = "1234"


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return new_folder(tmp_path_factory.mktemp("models") / "tiny", layers=1, width=16, heads=2, kv_heads=1, context=256)


def streamed(schedule: Any, tiny: Path, folder: Path, steps: int = 5, **stage: Any) -> Recipe:
    """GRPO with completions of very different lengths: a vowel ends one."""
    recipe = recipe_with(schedule, tiny, folder, steps)
    own: Any = recipe.stages["rl"]
    sampling = Sampling(max_tokens=24, stop=tuple("aeiouAEIOU13579"))
    rollout = replace(own.rollout, n=2, sampling=sampling)
    return replace(recipe, stages={"rl": replace(own, rollout=rollout, filters={}, **stage)})


def same(one: Any, other: Any) -> bool:
    weights = other["policy"].state_dict()
    return all(torch.equal(tensor, weights[name]) for name, tensor in one["policy"].state_dict().items())


def test_ages_are_of_tokens_and_of_the_oldest() -> None:
    """At step 5: 4 tokens of age 0 and 2 of age 1, and 2 of age 3: (2 + 6) / 8 on average; one of two beyond 2."""
    found = Staleness(spans=[[(5, 4), (4, 2)], [(2, 2)]], step=5, eta=2).metrics()
    assert found == {"staleness": 1.0, "staleness_max": 3.0, "beyond_eta": 0.5}
    assert Staleness(spans=[], step=5, eta=2).metrics()["staleness"] == 0.0


@pytest.mark.slow
def test_without_a_quota_and_with_whole_completions_it_is_step_by_step(tiny: Path, tmp_path: Path) -> None:
    """Only the groups of the next step may start, all end before it, and nothing is sampled beside."""
    found = []
    for name, schedule in (("turn", InTurn()), ("stream", Streaming(eta=0, piece=64, learning=0))):
        models, store = run(streamed(schedule, tiny, tmp_path, 2), tmp_path / name)
        found.append((models, store))
    assert same(found[0][0], found[1][0])
    for step in (1, 2):
        assert found[0][1].rollouts(step) == found[1][1].rollouts(step)
    ages = [entry["staleness_max"] for entry in found[1][1].metrics()]
    assert ages == [0.0, 0.0]


@pytest.fixture(scope="module")
def whole(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Recipe, Path]:
    """A recipe and the folder of its run."""
    folder = tmp_path_factory.mktemp("whole")
    recipe = streamed(Streaming(eta=2, piece=2, learning=1), tiny, folder)
    return recipe, start(recipe, folder, LiveView(lines=True))[0]


def test_the_journal_has_what_was_sampled_and_learned_from(whole: tuple[Recipe, Path]) -> None:
    """Each token has a step that is not after its batch; groups start within the quota; some go on over an update."""
    recipe, folder = whole
    stage: Any = recipe.stages["rl"]
    batch, eta = stage.prompts, 2
    begun, learned, ages = 0, set[int](), list[int]()
    drew: dict[int, dict[int, int]] = {}
    for number, line in enumerate((folder / "stream.jsonl").read_text().splitlines()):
        entry = json.loads(line)
        assert entry["stage_step"] == number + 1
        begun += len(entry["begun"])
        assert begun <= (eta + number + 1) * batch, "the quota; nothing is rejected here"
        for group, _, tokens in entry["pieces"]:
            own = drew.setdefault(group, {})
            own[number] = own.get(number, 0) + sum(tokens)
            assert max(tokens) <= 2
        assert len(entry["batch"]) == batch
        for group, spans in entry["batch"]:
            assert group not in learned
            learned.add(group)
            assert dict(spans) == drew[group]
            ages.append(number - min(drew[group]))
    assert any(len(own) > 1 for own in drew.values()), "no group was in progress over an update"
    assert max(ages) >= 1
    with RunStore.open(folder, reading=True) as store:
        assert [entry["staleness_max"] for entry in store.metrics()] == [
            float(max(ages[place : place + batch])) for place in range(0, len(ages), batch)
        ]


def test_the_journal_gives_the_same_weights(whole: tuple[Recipe, Path], tmp_path: Path) -> None:
    """The number of pieces beside a step is not used: the order of the journal decides, also a changed one."""
    _, folder = whole
    with allowing(trust=True):
        new, _ = replay(folder, tmp_path, LiveView(lines=True))
    assert different_files(folder / "model", new / "model") == []


@pytest.mark.slow
def test_another_journal_gives_other_weights(whole: tuple[Recipe, Path], tmp_path: Path) -> None:
    recipe, folder = whole
    with RunStore.open(folder, reading=True) as store:
        journal = store.stream()
    broken = [{**entry, "batch": entry["batch"][:1]} for entry in journal]
    new, _ = start(recipe, tmp_path, LiveView(lines=True), replayed=broken)
    assert different_files(folder / "model", new / "model") == ["model.safetensors"]
    cut = [{**entry, "pieces": entry["pieces"][:2]} for entry in journal]
    with pytest.raises(RunFailed, match=r"of the journal group .* ends, and here it goes on"):
        start(recipe, tmp_path, LiveView(lines=True), replayed=cut)
    with pytest.raises(RunFailed, match="the journal ends before step 5"):
        start(recipe, tmp_path, LiveView(lines=True), replayed=journal[:-1])


@pytest.mark.slow
def test_a_run_without_streams_has_no_journal(tiny: Path, tmp_path: Path) -> None:
    folder, _ = start(recipe_with(InTurn(), tiny, tmp_path, 1), tmp_path, LiveView(lines=True))
    assert not (folder / "stream.jsonl").exists()
    with pytest.raises(UserError, match=r"has no stream.jsonl: only runs with schedule=streaming"):
        replay(folder, tmp_path, LiveView(lines=True))


@pytest.mark.slow
@pytest.mark.parametrize("filtered", ["batch", "group"])
def test_a_streamed_run_resumes_to_the_bit(filtered: Any, tiny: Path, tmp_path: Path) -> None:
    """Cut off while groups are in progress; they go on from the tokens that they have."""
    recipe = streamed(Streaming(eta=2, piece=2, learning=1, filtered=filtered), tiny, tmp_path)
    models, one = run(recipe, tmp_path / "whole")
    resumed, again = cut_off_and_resumed(recipe, tmp_path / "cut", at=3)
    assert again.metrics() == one.metrics()
    assert any(entry["groups_running"] for entry in one.metrics())
    for step in one.rollout_steps():
        assert again.rollouts(step) == one.rollouts(step)
    assert again.stream() == one.stream()
    assert same(models, resumed)


@pytest.mark.slow
@pytest.mark.parametrize("too_old", ["drop", "wait"])
def test_no_batch_is_older_than_the_bound(too_old: Any, tiny: Path, tmp_path: Path) -> None:
    """The quota alone lets some be older; a bound does not, by dropping or by waiting."""
    worst = []
    for oldest in (None, 1):
        schedule = Streaming(eta=1, piece=1, learning=0, oldest=oldest, too_old=too_old)
        _, store = run(streamed(schedule, tiny, tmp_path, 8), tmp_path / f"{oldest}")
        worst.append(max(entry["staleness_max"] for entry in store.metrics()))
        rejected = [number for entry in store.stream() for number, _ in entry["left"]]
        assert (too_old == "drop" and oldest is not None) or not rejected
    assert worst[0] > 1
    assert worst[1] <= 1


@pytest.mark.slow
def test_a_step_with_too_many_rejected_groups_learns_from_those_that_there_are(tiny: Path, tmp_path: Path) -> None:
    """All rewards are equal, so that no group passes: 2 batches of 2 are rejected for each step, and no more begin."""
    schedule = Streaming(eta=0, piece=64, learning=0, filtered="group", rejected=2)
    recipe = streamed(schedule, tiny, tmp_path, 2)
    own: Any = recipe.stages["rl"]
    flat = tmp_path / "flat.py"
    flat.write_text("def score(completion, task):\n    return 0.0\n")
    stage = replace(own, reward=Function(path=f"{flat}:score"), filters={"zero_variance": ZeroVariance()})
    _, store = run(replace(recipe, stages={"rl": stage}), tmp_path / "run")
    entries = store.stream()
    assert [(len(entry["left"]), entry["batch"]) for entry in entries] == [(4, []), (4, [])]


def test_what_cannot_be_is_refused(tiny: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"schedule.oldest=1 with schedule.too_old=wait is less than schedule.eta=2"):
        Streaming(eta=2, oldest=1, too_old="wait")
    recipe = streamed(Streaming(), tiny, tmp_path, refill=Refill())
    context = RunContext(recipe, torch.device("cpu"))
    with pytest.raises(UserError, match="set refill=null"):
        context.check(context.first_models())
