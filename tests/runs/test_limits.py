"""A run stops, saved, before its hours or its money are over."""

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from posttrain.cli import main
from posttrain.errors import Interrupted, UserError
from posttrain.policies.folder import new_folder
from posttrain.recipes.files import find_recipe
from posttrain.runs import run
from posttrain.runs.launch import resume, start
from posttrain.runs.limits import TimeLimit, time_limit
from posttrain.runs.live import LiveView
from tests.runs.processes import contents

SMALL = (
    "model=tiny",
    "tasks.size=60",
    "evaluation.holdout=4",
    "steps=5",
    "prompts=2",
    "rollout.n=2",
    "rollout.sampling.max_tokens=4",
    "threads=1",
)


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    threads = torch.get_num_threads()
    monkeypatch.chdir(tmp_path)
    new_folder(Path("tiny"), layers=1, width=32, heads=2, kv_heads=1, context=64)
    yield
    torch.set_num_threads(threads)


def ticking(seconds: float) -> Iterator[float]:
    now = 0.0
    while True:
        yield now
        now += seconds


def test_it_stops_before_a_step_that_would_pass_the_limit() -> None:
    """Steps of 10 seconds: after the third, 30 of 35 are over, and a fourth would end at 40."""
    clock = ticking(10.0)
    limit = TimeLimit(35.0, "time is over", clock=lambda: next(clock))
    assert [limit.reached() for _ in range(3)] == [False, False, True]


def test_hours_and_costs_become_seconds() -> None:
    assert time_limit(None, None, None) is None
    hours, cost, both = time_limit(2.0, None, None), time_limit(None, 10.0, 2.5), time_limit(2.0, 10.0, 2.5)
    assert hours and hours.seconds == 7200 and hours.reason == "2 hours are over"
    assert cost and cost.seconds == 4 * 3600 and cost.reason == "at 2.5 an hour, 10 are spent"
    assert both and both.seconds == 7200, "the one that is reached first"
    for one in ((None, 10.0, None), (None, None, 2.5)):
        with pytest.raises(UserError, match="a cost needs a price"):
            time_limit(*one)


@pytest.mark.slow
def test_a_run_is_saved_and_goes_on_as_if_nothing_had_been() -> None:
    recipe = find_recipe("grpo", SMALL)
    whole, _ = start(recipe, Path("whole"), LiveView(lines=True))
    clock = ticking(10.0)
    limit = TimeLimit(35.0, "at 2.5 an hour, 10 are spent", clock=lambda: next(clock))
    with pytest.raises(Interrupted, match=r"stopped after step 3 .at 2.5 an hour, 10 are spent.*posttrain resume"):
        start(recipe, Path("short"), LiveView(lines=True), limit=limit)
    folder = Path("short/grpo-1")
    assert len((folder / "metrics.jsonl").read_text().splitlines()) == 3
    resume(folder, LiveView(lines=True))
    assert contents(folder) == contents(whole)


@pytest.mark.slow
def test_the_command_takes_a_price(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "grpo", *SMALL, "--most-cost", "0.0000001", "--price", "3"]) == 130
    assert "stopped after step 1 (at 3 an hour, 1e-07 are spent)" in capfd.readouterr().err
    assert main(["run", "grpo", *SMALL, "--price", "3"]) == 2
    assert "a cost needs a price" in capfd.readouterr().err


@pytest.mark.slow
def test_an_estimate_states_what_the_run_costs(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["estimate", "grpo", *SMALL, "--price", "3600", "--json"]) == 0
    found = json.loads(capfd.readouterr().out)
    assert found["seconds"] == pytest.approx(5 * found["seconds_a_step"]["rl"]["total"])
    assert found["cost"] == pytest.approx(found["seconds"])
    assert main(["estimate", "grpo", *SMALL, "--price", "3600", "--no-measure"]) == 2
    assert "--price is of the measured time" in capfd.readouterr().err


def test_an_evaluation_between_two_steps_is_timed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On a clock that only evaluations move."""
    clock, evaluate = [0.0], run.evaluate

    def slow(*given: Any) -> Any:
        clock[0] += 1000.0
        return evaluate(*given)

    monkeypatch.setattr(run, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    monkeypatch.setattr(run, "evaluate", slow)
    folder, summary = start(
        find_recipe("grpo", [*SMALL, "evaluation.every=2"]), tmp_path / "runs", LiveView(lines=True)
    )
    timing = [json.loads(line) for line in (folder / "timing.jsonl").read_text().splitlines()]
    totals = [entry["seconds_total"] for entry in timing if "seconds_total" in entry]
    assert totals == [0.0] * 5
    assert summary["seconds"] == sum(entry.get("seconds_evaluate", 0.0) for entry in timing) == 4 * 1000.0
