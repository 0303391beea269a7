"""What processes of a run get; those that are killed or hang are replaced, and change nothing."""

import importlib.util
import os
import signal
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from posttrain.cluster._weights import aligned, size_of
from posttrain.cluster._workers import Gang
from posttrain.components.timetables.lagged import Lagged
from posttrain.engines import Sampling, wait_for
from posttrain.engines._protocol import together
from posttrain.engines.native import Native
from posttrain.errors import RunFailed
from posttrain.models import LoRA, Model
from posttrain.policies.loading import load_policy
from posttrain.recipes.tree import Checkpoints
from posttrain.runs.context import RunContext
from tests.cluster.running import needs_ray, on, run, scored, small


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
