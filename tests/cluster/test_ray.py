"""A run on Ray is the run of one process, bit for bit, also when its processes are killed; and it leaves nothing.

Ray is started once for most of these tests; that takes seconds. With POSTTRAIN_RAY=all every recipe is run.
"""

import importlib.util
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from posttrain.cluster._processes import marked
from posttrain.cluster._weights import aligned, size_of
from posttrain.cluster._workers import Gang
from posttrain.cluster.ray import Ray
from posttrain.component.user_code import allowing
from posttrain.components.rewards.function import Function
from posttrain.components.timetables.in_turn import InTurn
from posttrain.components.timetables.lagged import Lagged
from posttrain.components.timetables.streaming import Streaming
from posttrain.engines import Sampling, wait_for
from posttrain.engines._protocol import together
from posttrain.engines.native import Native
from posttrain.errors import RunFailed, UserError
from posttrain.models import LoRA, Model
from posttrain.policies.folder import new_folder
from posttrain.policies.loading import load_policy
from posttrain.recipes.files import find_recipe
from posttrain.recipes.tree import Checkpoints, Recipe
from posttrain.runs.context import RunContext
from posttrain.runs.launch import start
from posttrain.runs.live import LiveView
from posttrain.runs.replaying import different_files, replay
from tests.conformance.test_methods import METHODS, made_small
from tests.stages.rl.test_together import made

needs_ray = pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="Ray is not installed")
RECIPES = "grpo ppo sft dpo kdrl carft tango chord llamarl asyncflow dump mopps treepo cory awm colar vpl"
"""One of each way to sample and to learn: critics, teachers, pairs, states, judges, trees, flows, a lag, a stream,
latent steps, a head that its stage applies.
"""

FAST = ("grpo", "dpo")
"""Run by `make test-fast` too."""


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


def marked_slow() -> list[Any]:
    names = sorted(METHODS) if os.environ.get("POSTTRAIN_RAY") == "all" else RECIPES.split()
    return [pytest.param(name, marks=() if name in FAST else pytest.mark.slow) for name in names]


@needs_ray
@pytest.mark.parametrize("name", marked_slow())
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
@pytest.mark.parametrize("caches", ["renewed", "kept"])
def test_groups_in_progress_over_updates_are_those_of_one_process(
    caches: Any, tiny: Path, session: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A group that was begun beside the learner is not sampled with the weights of its start for ever, nor one that was
    begun before with those that the learner is changing.
    """
    recipe = scored(small("grpo", tiny), tmp_path, steps=4)
    stage: Any = recipe.stages["rl"]
    rollout = replace(stage.rollout, n=2, sampling=Sampling(max_tokens=24, stop=tuple("aeiouAEIOU13579")))
    schedule = Streaming(eta=2, piece=2, learning=2, caches=caches)
    recipe = replace(recipe, stages={"rl": replace(stage, rollout=rollout)}, schedule=schedule)
    alone = run(recipe, tmp_path / "local")
    on(session, monkeypatch)
    assert run(recipe, tmp_path / "ray") == alone


@needs_ray
@pytest.mark.slow
@pytest.mark.parametrize("schedule", [InTurn(), Lagged(steps=2), Streaming(eta=2, piece=2, learning=1)])
def test_tasks_that_are_scored_together_are_those_of_one_process(
    schedule: Any, tiny: Path, session: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with allowing(trust=True):
        recipe = made(tiny, tmp_path / "of", schedule, 4)
        stage: Any = recipe.stages["rl"]
        stage = replace(stage, learner=replace(stage.learner, micro_batch_tokens=64))
        recipe = replace(recipe, stages={"rl": stage}, engine=Native(slots=16))
        alone = run(recipe, tmp_path / "local")
        on(session, monkeypatch)
        assert run(recipe, tmp_path / "ray") == alone


@needs_ray
@pytest.mark.slow
def test_a_run_by_the_clock_on_two_samplers_is_replayed_in_one_process(
    tiny: Path, session: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = scored(small("grpo", tiny), tmp_path, steps=4)
    recipe = replace(recipe, schedule=Streaming(eta=2, piece=2, order="clock", caches="kept"))
    with monkeypatch.context() as patched:
        on(session, patched)
        folder, _ = start(recipe, tmp_path / "ray", LiveView(lines=True))
    with allowing(trust=True):
        new, _ = replay(folder, tmp_path / "again", LiveView(lines=True))
    assert different_files(folder / "model", new / "model") == []


@needs_ray
@pytest.mark.slow
def test_a_reference_with_a_process_of_its_own_is_in_no_learner(
    tiny: Path, session: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = small("ppo", tiny)
    alone = run(recipe, tmp_path / "local")
    on(session, monkeypatch)
    monkeypatch.setattr(session, "scorers", [session._start("Learners", 0)])
    session._check(session.scorers[0])
    published: set[tuple[str, str]] = set()
    before = type(session).publish

    def publish(session: Any, policy: Any, use: Any, learner: Any = None) -> Any:
        published.add((policy.role, use))
        return before(session, policy, use, learner)

    monkeypatch.setattr(type(session), "publish", publish)
    try:
        assert run(recipe, tmp_path / "ray") == alone
    finally:
        import ray

        ray.kill(session.scorers[0].actor)
    assert ("reference", "score") in published and ("reference", "learn") not in published
    assert {("policy", "learn"), ("critic", "learn")} <= published


@needs_ray
@pytest.mark.slow
@pytest.mark.parametrize("name", ["grpo", "ppo", "kdrl", "relift", "tango"])
def test_a_recipe_on_sharded_learners_is_that_of_one_process(
    name: str, tiny: Path, session: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Critics and references are sharded too; a divergence's other model is whole."""
    recipe = small(name, tiny)
    alone = run(recipe, tmp_path / "local")
    on(session, monkeypatch)
    monkeypatch.setattr(session, "settings", replace(session.settings, sharding="fsdp"))
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


@needs_ray
@pytest.mark.slow
@pytest.mark.parametrize("overlapped", [True, False])
def test_a_lagged_run_samples_several_steps_at_a_time_and_is_that_of_one_process(
    overlapped: bool, tiny: Path, session: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With k = 2 samplers have copies of up to three versions; a sampler is killed in the middle."""
    recipe = scored(small("grpo", tiny), tmp_path, steps=7)
    recipe = replace(recipe, schedule=Lagged(steps=2, overlapped=overlapped), checkpoints=Checkpoints(every_steps=5))
    alone = run(recipe, tmp_path / "local")
    on(session, monkeypatch)
    before, used, begun = session._copy, set[str](), list[int]()

    def copy(policy: Any) -> str:
        name: str = before(policy)
        begun.append(sum(count for other, count in session._copies.items() if count > 0))
        if len(begun) == 4:
            os.kill(session.samplers[0].pid, signal.SIGKILL)
        used.add(name)
        return name

    monkeypatch.setattr(session, "_copy", copy)
    assert run(recipe, tmp_path / "ray") == alone
    assert max(begun) <= 3 and (len(used) > 1) == overlapped == (max(begun) > 1)


@needs_ray
@pytest.mark.slow
def test_a_sampler_that_is_replaced_has_the_copies_that_others_sample_from(tiny: Path, session: Any) -> None:
    """It is found dead by the publication of a new version, while the older one is sampled from beside."""
    policy = load_policy("policy", Model(source=str(tiny), trained=True), {}, torch.device("cpu"))
    before = session.beside([policy], lambda: None)
    name = session.name_of(policy) + "~0"
    with torch.no_grad():
        next(policy.parameters()).add_(1.0)
    dead = session.samplers[1]  # the other tests kill the first one as often as a process is replaced
    os.kill(dead.pid, signal.SIGKILL)
    wait_until_ended(dead.pid)
    session.publish(policy, "sample")
    assert session.samplers[1] is not dead
    version = session._sent["sample", name].version
    assert session.samplers[0].has[name] == session.samplers[1].has[name] == version.key
    ray: Any = importlib.import_module("ray")
    asked = np.arange(3), [1, 2], Sampling(max_tokens=4), None
    texts = [
        [one.token_ids.tolist() for one in ray.get(member.actor.complete.remote(name, None, *asked), timeout=60).answer]
        for member in session.samplers
    ]
    assert texts[0] == texts[1]
    before()
    session.keep([])


@needs_ray
@pytest.mark.slow
def test_adapters_go_to_samplers_without_their_base(tiny: Path, session: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A version goes with the next request to each; a sampler that is replaced gets the base anew."""
    policy = load_policy("policy", Model(source=str(tiny), trained=True, lora=LoRA(rank=2)), {}, torch.device("cpu"))
    whole, adapters = size_of(policy), sum(aligned(p.nbytes) for p in policy.parameters() if p.requires_grad)
    adapters += sum(aligned(buffer.nbytes) for buffer in policy.buffers())
    given, give, server = list[int](), session._give, session.serve(policy)
    session.take_timing()

    def recorded(*arguments: Any, **named: Any) -> Any:
        given.append(give(*arguments, **named))
        return given[-1]

    monkeypatch.setattr(session, "_give", recorded)

    def answers(server: Any) -> Any:
        prompts = [np.arange(3), np.arange(5)]
        requests = [server.complete(prompt, [1, 2], Sampling(max_tokens=4)) for prompt in prompts]
        return [[one.logp.tolist() for one in found] for found in wait_for(together(requests))]

    for killed in (None, None, 1):
        with torch.no_grad():
            [parameter.add_(0.1) for parameter in policy.parameters() if parameter.requires_grad]
        policy.version += 1
        if killed is not None:
            os.kill(session.samplers[killed].pid, signal.SIGKILL)
        assert answers(server) == answers(Native(slots=16).serve(policy, 0))
        keys = [member.has[session.name_of(policy)] for member in session.samplers]
        assert keys[0] == keys[1] == session._sent["sample", session.name_of(policy)].version.key
    assert 0 < adapters < whole / 4 and given == [whole, adapters, adapters, whole]
    assert session.take_timing()["weight_bytes"] == whole + 2 * adapters
    session.keep([])


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
    policy = load_policy("policy", Model(source=str(tiny), trained=True), {}, torch.device("cpu"))
    session.take_timing()
    first = session.publish(policy, "sample")
    assert session.take_timing()["weight_bytes"] == first.bytes == size_of(policy)
    assert first.bytes == sum(aligned(4 * p.numel()) for p in policy.parameters())
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
def test_a_sharded_learner_that_is_killed_ends_the_run_in_one_sentence(
    tiny: Path, session: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from posttrain.cluster._sharded import Parts

    on(session, monkeypatch)
    monkeypatch.setattr(session, "settings", replace(session.settings, sharding="fsdp"))
    before = Parts.update
    calls: list[int] = []

    def update(parts: Parts, *arguments: Any) -> None:
        calls.append(1)
        if len(calls) == 2:
            os.kill(session.learners[0].pid, signal.SIGKILL)
        before(parts, *arguments)

    monkeypatch.setattr(Parts, "update", update)
    with pytest.raises(RunFailed, match=r"its part of the optimizer's state .* posttrain resume goes on"):
        run(scored(small("grpo", tiny), tmp_path, steps=4), tmp_path / "ray")


@needs_ray
@pytest.mark.slow
def test_what_sharding_does_not_do_is_refused(tiny: Path, session: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from posttrain.components.optimizers.online_merging import OnlineMerging
    from posttrain.training.learner import Learner
    from posttrain.training.settings import Learning

    monkeypatch.setattr(session, "settings", replace(session.settings, sharding="fsdp"))
    policy = load_policy("policy", Model(source=str(tiny), trained=True), {}, torch.device("cpu"))
    models = {"reference": policy, "base": policy}
    learner = Learner(policy, Learning(optimizer=OnlineMerging()), seed=0, num_steps=1, others=models)
    with pytest.raises(UserError, match=r"the optimizer reads other models; set cluster\.sharding=none"):
        session.workers(learner)


@needs_ray
@pytest.mark.slow
def test_a_ray_that_is_there_refuses_another_token(session: Any, tmp_path: Path) -> None:
    """A process of its own, since this one has joined already. Ray tries 20 times by default."""
    import ray

    there: Any = ray
    token = tmp_path / "token"
    token.write_text("0" * 64)
    token.chmod(0o600)
    address = there.get_runtime_context().gcs_address
    code = (
        "from posttrain.cluster._opened import join\n"
        "from posttrain.errors import UserError\n"
        "try:\n"
        f"    join('{address}', dict(log_to_driver=False, configure_logging=False))\n"
        "except UserError as error:\n"
        "    print('refused:', error)\n"
    )
    environment = {**os.environ, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(token)}
    environment["RAY_NUM_REDIS_GET_RETRIES"] = "2"
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=100)
    assert f"refused: the Ray at {address} did not let this process in" in done.stdout
    assert str(token) in done.stdout


@needs_ray
@pytest.mark.slow
def test_a_run_that_a_ray_refuses_leaves_no_folder_and_a_resumed_one_stays_as_it_is(
    session: Any, tiny: Path, tmp_path: Path
) -> None:
    """A Ray that is there has too few CPUs free."""
    import ray

    there: Any = ray
    size = ["steps=1", "prompts=2", "rollout.n=2", "rollout.sampling.max_tokens=4", "evaluation.holdout=2", "threads=1"]
    joined = ["cluster=ray", f"cluster.address={there.get_runtime_context().gcs_address}", "cluster.samplers=64"]
    environment = {**os.environ, "RAY_AUTH_TOKEN_PATH": str(session.folder / "token")}

    def called(*arguments: str) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, "-m", "posttrain", *arguments]
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=200)

    grpo = ["run", "grpo", *size, f"model={tiny}", "--runs", str(tmp_path / "runs")]
    refused = called(*grpo, *joined)
    assert refused.returncode == 2 and "cluster.samplers=64" in refused.stderr and "are free of the" in refused.stderr
    assert not (tmp_path / "runs").exists() or not list((tmp_path / "runs").iterdir())
    assert called(*grpo).returncode == 0
    (run,) = [folder for folder in (tmp_path / "runs").iterdir() if folder.is_dir()]
    before = contents(run)
    refused = called("resume", str(run), "steps=2", *joined)
    assert refused.returncode == 2 and "are free of the" in refused.stderr
    after = contents(run)
    changed = sorted(file.name for file in after if after[file] != before.get(file))
    assert set(changed) <= {"history.jsonl", ".lock"}, "which states that it was opened"
    assert before.keys() <= after.keys() and '"changed"' not in (run / "history.jsonl").read_text()


def contents(folder: Path) -> dict[Path, bytes]:
    """Of all files below a folder."""
    return {file: file.read_bytes() for file in folder.rglob("*") if file.is_file()}


@needs_ray
@pytest.mark.slow
def test_the_token_is_in_no_file_of_a_run_no_log_of_its_ray_and_no_command_line(tmp_path: Path) -> None:
    """Looked for while the run goes on and when it has ended: in all command lines of this machine, everything below
    the run's folder and Ray's own, and what the command prints."""
    command = [sys.executable, "-m", "posttrain", "run", "grpo", "checkpoints.every_steps=1", "threads=1"]
    command += ["steps=12", "prompts=2", "rollout.n=2", "rollout.sampling.max_tokens=4", "evaluation.holdout=2"]
    command += ["cluster=ray", "cluster.cpus=0.5", "cluster.learners=2", "learner.micro_batch_tokens=64"]
    command += ["--runs", str(tmp_path / "runs")]
    running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    metrics, until = tmp_path / "runs" / "grpo-1" / "metrics.jsonl", time.monotonic() + 120
    try:
        while not metrics.is_file() or not metrics.read_bytes().count(b"\n"):
            assert running.poll() is None, running.communicate()[0]
            assert time.monotonic() < until
            time.sleep(0.05)
        (token,) = {Path(folder) / "token" for pid, folder in marked().items() if parent_of(pid) == running.pid}
        assert stat.S_IMODE(token.stat().st_mode) == 0o600 and stat.S_IMODE(token.parent.stat().st_mode) == 0o700
        secret = token.read_bytes()
        assert len(secret) == 64
        assert command_lines_with(secret) == [] and len(command_lines_with(str(token.parent).encode())) > 3
        logs = [file for file in token.parent.rglob("*") if file.is_file() and file != token]
        assert sum(file.suffix in (".log", ".out", ".err") for file in logs) > 5
        assert [file for file in logs if secret in file.read_bytes()] == []
        printed = running.communicate(timeout=200)[0]
    finally:
        running.kill()
        running.wait()
    assert not token.exists()
    assert running.returncode == 0 and secret not in printed
    files = [file for file in (tmp_path / "runs").rglob("*") if file.is_file()]
    assert len(files) > 10 and [file for file in files if secret in file.read_bytes()] == []


def parent_of(pid: int) -> int:
    """The number of a process's parent; 0 where it has ended."""
    try:
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except OSError:
        return 0


def command_lines_with(text: bytes) -> list[str]:
    """Processes of this machine that have a text in their command lines."""
    found = []
    for file in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            content = file.read_bytes()
        except OSError:  # ended meanwhile
            continue
        found += [str(file)] if text in content else []
    return found
