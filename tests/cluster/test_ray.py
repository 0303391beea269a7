"""A run on Ray is the run of one process, bit for bit, also when its processes are killed; and it leaves nothing.

Ray is started once for most of these tests; that takes seconds. With POSTTRAIN_RAY=all every recipe is run.
"""

import importlib.util
import os
import signal
import socket
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from posttrain.cluster._ports import answers, listening
from posttrain.cluster._processes import marked
from posttrain.cluster._workers import Gang
from posttrain.cluster.ray import Ray
from posttrain.components.rewards.function import Function
from posttrain.engines.native import Native
from posttrain.errors import UserError
from posttrain.policies.folder import new_folder
from posttrain.recipes.files import find_recipe
from posttrain.recipes.tree import Recipe
from posttrain.runs.context import RunContext
from posttrain.runs.launch import start
from posttrain.runs.live import LiveView
from tests.conformance.test_methods import METHODS, made_small
from tests.runs.processes import command, finish, steps_done

needs_ray = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed")
RECIPES = (
    "grpo",
    "ppo",
    "sft",
    "dpo",
    "kdrl",
    "carft",
    "tango",
    "chord",
    "llamarl",
    "dump",
    "mopps",
    "treepo",
    "cory",
    "awm",
)
"""One of each way to sample and to learn: critics, teachers, pairs, states, judges, curricula, trees, flows, a lag."""


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return new_folder(tmp_path_factory.mktemp("models") / "tiny", layers=2, width=16, heads=2, kv_heads=1, context=512)


@pytest.fixture(scope="module")
def session() -> Iterator[Any]:
    from posttrain.cluster._opened import opened

    torch.set_num_threads(1)
    with opened(Ray(samplers=2, learners=2, cpus=0.5, timeout=60.0), Native(slots=16), 0) as session:
        yield session


def small(name: str, tiny: Path) -> Recipe:
    """A recipe with the smallest models, cut into many micro-batches."""
    recipe = made_small(find_recipe(name), tiny)
    stages = {}
    for key, stage in recipe.stages.items():
        learner: Any = getattr(stage, "learner", None)
        if learner is not None and learner.micro_batch_tokens is None:
            stage = replace(stage, learner=replace(learner, micro_batch_tokens=64))  # type: ignore[type-var]
        stages[key] = stage
    return replace(recipe, stages=stages, engine=Native(slots=16))


SCORE = """
def score(completion, task):
    return (sum(map(ord, completion)) + len(task.prompt)) % 7 / 6
"""


def scored(recipe: Recipe, folder: Path, **settings: Any) -> Recipe:
    """A recipe with a reward that distinguishes the noise of a tiny model, so that it learns something."""
    (folder / "mine.py").write_text(SCORE)
    stage: Any = next(iter(recipe.stages.values()))
    stage = replace(stage, reward=Function(path=f"{folder}/mine.py:score"), **settings)
    return replace(recipe, stages={"rl": stage})


def outcome(run: Path) -> dict[str, bytes]:
    """What a run may not owe to its processes: metrics, rollouts, held-out answers, the model."""
    files = [
        run / "metrics.jsonl",
        *sorted((run / "rollouts").glob("*")),
        *sorted((run / "model").glob("*.safetensors")),
    ]
    return {str(file.relative_to(run)): file.read_bytes() for file in files if file.is_file()}


def on(session: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let runs take the processes that are there."""

    @contextmanager
    def processes(context: RunContext) -> Iterator[None]:
        session.engine, context.session, context._servers = context.recipe.engine, session, {}
        yield
        session.keep([])

    monkeypatch.setattr(RunContext, "processes", processes)


def run(recipe: Recipe, root: Path) -> dict[str, bytes]:
    folder, _ = start(recipe, root, LiveView(lines=True))
    return outcome(folder)


@needs_ray
@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(METHODS) if os.environ.get("POSTTRAIN_RAY") == "all" else RECIPES)
def test_a_recipe_on_two_samplers_and_two_learners_is_that_of_one_process(
    name: str, tiny: Path, session: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = small(name, tiny)
    alone = run(recipe, tmp_path / "local")
    assert "metrics.jsonl" in alone
    on(session, monkeypatch)
    assert run(recipe, tmp_path / "ray") == alone


@needs_ray
@pytest.mark.slow
def test_processes_that_are_killed_are_replaced_and_change_nothing(
    tiny: Path, session: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = scored(small("grpo", tiny), tmp_path, steps=5)
    alone = run(recipe, tmp_path / "local")
    assert b'"gradient_norm": 0.0' not in alone["metrics.jsonl"]
    on(session, monkeypatch)
    before = RunContext.server
    calls: list[int] = []

    def server(context: RunContext, policy: Any) -> Any:
        calls.append(1)
        if len(calls) in (12, 30):
            os.kill((session.samplers if len(calls) == 12 else session.learners)[0].pid, signal.SIGKILL)
        return before(context, policy)

    monkeypatch.setattr(RunContext, "server", server)
    assert run(recipe, tmp_path / "ray") == alone
    events = (tmp_path / "ray" / "grpo-1" / "events.jsonl").read_text()
    assert "sampler 0" in events and "learner 1" in events and "replaced" in events


def wait_until_ended(pid: int) -> None:
    """A killed process is gone, or waits to be reaped, a moment after its signal."""
    for _ in range(600):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return
        if state == "Z":
            return
        time.sleep(0.05)
    pytest.fail(f"process {pid} has not ended")


@needs_ray
@pytest.mark.slow
def test_a_learner_that_hangs_is_killed_and_changes_nothing(
    tiny: Path, session: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = scored(small("grpo", tiny), tmp_path, steps=3)
    alone = run(recipe, tmp_path / "local")
    on(session, monkeypatch)
    monkeypatch.setattr(session, "settings", replace(session.settings, timeout=6.0))
    before = Gang._together
    calls: list[int] = []

    def together(gang: Gang, *arguments: Any) -> Any:
        calls.append(session.learners[0].pid)
        if len(calls) == 2:
            os.kill(session.learners[0].pid, signal.SIGSTOP)
        return before(gang, *arguments)

    monkeypatch.setattr(Gang, "_together", together)
    assert run(recipe, tmp_path / "ray") == alone
    assert session.learners[0].pid != calls[1]
    wait_until_ended(calls[1])


@needs_ray
@pytest.mark.slow
def test_weights_are_sent_once_a_version(tiny: Path, session: Any) -> None:
    from posttrain.models import Model
    from posttrain.policies.loading import load_policy

    policy = load_policy("policy", Model(source=str(tiny), trained=True), {}, torch.device("cpu"))
    session.take_timing()
    first = session.publish(policy, "sample")
    assert session.take_timing()["weight_bytes"] == first.bytes == sum(4 * p.numel() for p in policy.parameters())
    session.publish(policy, "sample")
    assert session.take_timing() == {}
    with torch.no_grad():
        next(policy.parameters()).add_(1.0)
    assert session.publish(policy, "sample").digest != first.digest
    session.keep([])


@needs_ray
@pytest.mark.slow
def test_the_token_is_the_owners_alone_and_not_in_a_command_line(session: Any) -> None:
    token = session.folder / "token"
    assert stat.S_IMODE(token.stat().st_mode) == 0o600
    secret = token.read_bytes()
    own = [pid for pid, folder in marked().items() if folder == str(session.folder)]
    assert own
    assert not any(secret in Path(f"/proc/{pid}/cmdline").read_bytes() for pid in own)


@needs_ray
@pytest.mark.slow
def test_a_killed_run_goes_on_with_other_processes_and_leaves_none(tiny: Path, tmp_path: Path) -> None:
    settings = [
        f"model={tiny}",
        "steps=6",
        "prompts=3",
        "rollout.n=4",
        "rollout.sampling.max_tokens=8",
        "learner.micro_batch_tokens=64",
        "reward=mine.py:score",
        "tasks.size=40",
        "evaluation.holdout=4",
        "checkpoints.every_steps=2",
        "threads=1",
    ]
    ray = ["cluster=ray", "cluster.samplers=2", "cluster.learners=2", "cluster.cpus=0.5"]
    (tmp_path / "mine.py").write_text(SCORE)
    finish(command(tmp_path, "run", "grpo", *settings, "--runs", "alone"))
    process = command(tmp_path, "run", "grpo", *settings, *ray, "--runs", "killed", held_at=3)
    folder = tmp_path / "killed" / "grpo-1"
    while not (folder / "metrics.jsonl").is_file() or steps_done(folder) < 3:
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.05)
    own = {mark for pid, mark in marked().items() if _driver_of(mark, process.pid)}
    process.send_signal(signal.SIGKILL)
    process.communicate()
    finish(command(tmp_path, "resume", str(folder), "cluster.learners=4"))
    alone, killed = outcome(tmp_path / "alone" / "grpo-1"), outcome(folder)
    assert killed == alone
    assert not own & set(marked().values())
    assert not any(Path(mark).exists() for mark in own)


def _driver_of(mark: str, pid: int) -> bool:
    """Whether a cluster's folder is held open by a process."""
    links = Path(f"/proc/{pid}/fd")
    return any(os.path.realpath(link) == mark for link in links.iterdir())


# Without Ray


def test_more_processes_than_the_machine_has_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda pid: set(range(2)))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    Ray(samplers=4, learners=4).check("cpu")
    with pytest.raises(UserError, match=r"cluster\.samplers=40 and cluster\.learners=2 ask for 41 CPUs .* has 2 "):
        Ray(samplers=40, learners=2).check("cpu")


def test_without_ray_it_states_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(UserError, match=r"pip install 'posttrain\[ray\]'"):
        Ray().check("cpu")


def test_a_token_that_others_can_read_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    token = tmp_path / "token"
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(token))
    with pytest.raises(UserError, match="there is no token"):
        Ray(address="auto").check("cpu")
    token.write_text("secret")
    token.chmod(0o644)
    with pytest.raises(UserError, match=f"chmod 600 {token}"):
        Ray(address="auto").check("cpu")
    token.chmod(0o600)
    Ray(address="auto").check("cpu")


def test_a_gpu_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: object())
    with pytest.raises(UserError, match="cluster=ray has processes on CPUs only, and this run is on cuda"):
        Ray().check("cuda")


def test_ports_that_a_process_listens_on_are_found() -> None:
    """One on all addresses and one on the loopback interface."""
    with socket.create_server(("0.0.0.0", 0)) as every, socket.create_server(("127.0.0.1", 0)) as here:
        found = {port.number: port for port in listening([os.getpid()])}
        own = {name: found[server.getsockname()[1]] for name, server in (("every", every), ("here", here))}
        assert own["every"].is_open and own["every"].address == "0.0.0.0"
        assert not own["here"].is_open and own["here"].address == "127.0.0.1"
        assert answers("127.0.0.1", own["here"].number)
    assert not answers("127.0.0.1", own["here"].number)
    assert listening([]) == []
