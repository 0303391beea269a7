"""A run on Ray that is killed goes on with other processes, is that of one process, and leaves none."""

import os
import signal
import time
from pathlib import Path

import pytest

from posttrain.cluster._processes import marked
from posttrain.policies.folder import new_folder
from tests.cluster.running import SCORE, needs_ray, outcome
from tests.runs.processes import command, finish, steps_done


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return new_folder(tmp_path_factory.mktemp("models") / "tiny", layers=2, width=16, heads=2, kv_heads=1, context=512)


def several_steps(tiny: Path) -> list[str]:
    """The changes of a small run that a process of its own makes."""
    return [
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
        "schedule=lagged",
        "schedule.steps=2",
    ]


@pytest.fixture(scope="module")
def alone(tiny: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """What that run gives where nothing is done to it, in one process."""
    folder = tmp_path_factory.mktemp("alone")
    (folder / "mine.py").write_text(SCORE)
    finish(command(folder, "run", "grpo", *several_steps(tiny), "--runs", "alone"))
    return outcome(folder / "alone" / "grpo-1")


@needs_ray
@pytest.mark.slow
@pytest.mark.parametrize("sharding", ["none", "fsdp"])
def test_a_killed_run_goes_on_with_other_processes_and_leaves_none(
    sharding: str, tiny: Path, alone: dict[str, bytes], tmp_path: Path
) -> None:
    ray = [
        "cluster=ray",
        "cluster.samplers=2",
        "cluster.learners=2",
        "cluster.cpus=0.5",
        f"cluster.sharding={sharding}",
    ]
    (tmp_path / "mine.py").write_text(SCORE)
    process = command(tmp_path, "run", "grpo", *several_steps(tiny), *ray, "--runs", "killed", held_at=3)
    folder = tmp_path / "killed" / "grpo-1"
    while not (folder / "metrics.jsonl").is_file() or steps_done(folder) < 3:
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.05)
    own = {mark for pid, mark in marked().items() if _driver_of(mark, process.pid)}
    process.send_signal(signal.SIGKILL)
    process.communicate()
    finish(command(tmp_path, "resume", str(folder), "cluster.learners=3"))
    assert outcome(folder) == alone
    assert not own & set(marked().values())
    assert not any(Path(mark).exists() for mark in own)


def _driver_of(mark: str, pid: int) -> bool:
    """Whether a cluster's folder is held open by a process."""
    links = Path(f"/proc/{pid}/fd")
    return any(os.path.realpath(link) == mark for link in links.iterdir())
