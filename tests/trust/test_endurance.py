"""A long run of rewards in workers holds no more at its end than after its first tenth."""

import os
from pathlib import Path

import pytest

import posttrain.components.rewards
from benchmarks.endurance import grown, rewards
from posttrain.components.rewards import Reward
from tests.trust.commands import run_benchmark

ISOLATED = ("grading.workers", "grading.isolated", "open_pool")
"""What a reward imports that runs in workers or sandboxes."""


def test_growth_is_seen() -> None:
    first = {"resident kB": 1000, "descriptors": 9}
    assert not grown(first, {"resident kB": 1050, "descriptors": 17})
    assert not grown(first, {"resident kB": 900, "descriptors": 8})
    assert grown(first, {"resident kB": 1051, "descriptors": 18}) == [
        "resident kB: 1000 -> 1051",
        "descriptors: 9 -> 18",
    ]
    assert not grown({"resident kB": 1000}, {"resident kB": 1020}, steps=400)
    assert grown({"resident kB": 1000}, {"resident kB": 1021}, steps=400) == ["resident kB: 1000 -> 1021"]
    assert not grown({"resident kB": 1000}, {"resident kB": 1050}, steps=10_000)


def test_every_reward_in_workers_is_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for cls in Reward.__subclasses__():
        monkeypatch.setattr(cls, "prepare", lambda self: None)
    folder = Path(posttrain.components.rewards.__path__[0])
    isolated = {path.stem for path in folder.glob("*.py") if any(name in path.read_text() for name in ISOLATED)}
    in_workers, sandboxed = rewards(tmp_path)
    assert in_workers.keys() | sandboxed.keys() == isolated


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="what a process holds is read from /proc")
def test_nothing_grows_after_the_first_tenth() -> None:
    """Part of `python -m benchmarks.endurance`; POSTTRAIN_ENDURANCE_STEPS=10000 and `-o timeout=0` for all of it."""
    steps = os.environ.get("POSTTRAIN_ENDURANCE_STEPS", "400")
    table = run_benchmark("-m", "benchmarks.endurance", "--steps", steps)
    assert table.splitlines()[-1].startswith(f"| {steps} |")
