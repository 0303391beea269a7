import io
import random

import pytest
from rich.console import Console

from posttrain.runs import live
from posttrain.runs.live import LiveView, describe_evaluation
from tests.runs.made_runs import step_numbers

EVALUATION = {
    "accuracy": 0.415,
    "accuracy_interval": [0.349, 0.484],
    "tasks": 200,
    "errors": 1,
    "pass_at_k": {"1": 0.4, "8": 0.6},
}


def terminal(width: int = 100) -> Console:
    return Console(file=io.StringIO(), force_terminal=True, width=width, color_system=None)


def file() -> Console:
    return Console(file=io.StringIO(), width=80, highlight=False)


def text(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def step(view: LiveView, number: int, stage: str, stage_step: int) -> None:
    metrics = {
        "step": number,
        "stage": stage,
        "stage_step": stage_step,
        **step_numbers(stage, 0.5, random.Random(number)),
    }
    view.step(metrics, {"seconds_total": 2.0, "peak_memory_bytes": 2**29})


@pytest.fixture(autouse=True)
def bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CI", "NO_COLOR", "TERM"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")


def test_a_stage_may_turn_out_shorter_than_was_reported() -> None:
    view = LiveView(console=(console := terminal()))
    view.start("mpo", 61, {"dpo": 61, "rl": 0})
    view.plan("dpo", 30)
    step(view, 30, "dpo", 30)
    view._console.print(view.render())
    view.close()
    assert "dpo 30/30" in text(console)
    assert "left" not in text(console)


def test_a_file_gets_one_line_a_step_without_colours() -> None:
    console = file()
    view = LiveView(console=console)
    view.start("quickstart", 3, {"sft": 1, "rl": 2})
    view.evaluation("before", EVALUATION)
    step(view, 1, "sft", 1)
    view.event("alarm", "a [bold]long[/] message " * 9)
    step(view, 2, "rl", 1)
    step(view, 3, "rl", 2)
    view.close()
    lines = text(console).splitlines()
    assert lines[0] == "quickstart: 3 steps (sft 1, rl 2)"
    assert lines[1] == "held-out (before): 41.5 % [34.9, 48.4] of 200 tasks, pass@8 60.0 %, 1 not scored"
    assert lines[2].startswith("sft 1/1  loss ") and lines[2].endswith("memory 512 MiB  0:04 left")
    assert lines[3] == "alarm: " + ("a [bold]long[/] message " * 9)
    assert lines[4].startswith("rl 1/2  reward ") and "(exact " in lines[4]
    assert len(lines) == 6
    assert "\x1b" not in text(console)


def test_lines_thin_out(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(live.time, "monotonic", lambda: now)
    console = file()
    view = LiveView(console=console)
    view.start("long", 20_000, {"rl": 20_000})
    for number in range(1, 20_001):
        now += 1.0
        step(view, number, "rl", number)
    lines = text(console).splitlines()
    assert 200 < len(lines) < 500
    assert lines[1].startswith("rl 1/20000")
    assert lines[2].startswith("rl 3/20000")
    assert lines[-1].startswith("rl 20000/20000")


@pytest.mark.parametrize("name", ["CI", "NO_COLOR"])
def test_plain_lines_are_forced_by_the_environment(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "1")
    console = terminal()
    view = LiveView(console=console)
    view.start("quickstart", 1, {"rl": 1})
    assert text(console) == "quickstart: 1 steps (rl 1)\n"


def test_json_leaves_standard_output_alone(capsys: pytest.CaptureFixture[str]) -> None:
    view = LiveView(json=True)
    view.start("quickstart", 1, {"rl": 1})
    step(view, 1, "rl", 1)
    view.close()
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("quickstart: 1 steps")


def test_a_terminal_gets_a_table_that_stays_after_the_end() -> None:
    console = terminal()
    view = LiveView(console=console)
    view.start("quickstart", 4, {"sft": 2, "rl": 2})
    view.evaluation("before", {**EVALUATION, "accuracy": 0.1})
    for number, (stage, stage_step) in enumerate([("sft", 1), ("sft", 2), ("rl", 1), ("rl", 2)], start=1):
        step(view, number, stage, stage_step)
    view.evaluation("rl", EVALUATION)
    view.event("alarm", "entropy fell below [0.1]")
    view.close()
    last = text(console).rsplit("╭", 1)[1]
    for expected in (
        "posttrain  quickstart",
        "rl 2/2  stage 2 of 2",
        "reward",
        "exact",
        "KL reference",
        "zero-variance",
        "512 MiB",
        "41.5 % [34.9, 48.4]",
        "after rl · began at 10.0 %",
        "alarm: entropy fell below [0.1]",
    ):
        assert expected in last
    assert "loss" not in last
    assert "left" not in last


@pytest.mark.parametrize("width", [40, 64, 200])
def test_any_width(width: int) -> None:
    console = terminal(width)
    view = LiveView(lines=False, console=console)
    view.start("quickstart", 4, {"rl": 4})
    for number in (1, 2, 3):
        step(view, number, "rl", number)
    view.close()
    assert all(len(line) <= width for line in text(console).splitlines() if "\x1b" not in line)


def test_nothing_has_happened_yet() -> None:
    console = terminal()
    view = LiveView(lines=False, console=console)
    view.start("quickstart", 4, {"rl": 4})
    view.close()
    view.close()
    assert "getting ready" in text(console)


def test_evaluations_in_words() -> None:
    assert describe_evaluation({"accuracy": None, "accuracy_interval": None, "tasks": 3, "errors": 3}) == (
        "no answer could be scored of 3 tasks, 3 not scored"
    )


def test_what_is_announced_is_printed_as_is() -> None:
    console = Console(file=io.StringIO(), width=60, force_terminal=False)
    LiveView(lines=True, console=console).announce("mine.jsonl: 2 tasks\n  [prompt] -> question")
    assert console.file.getvalue() == "mine.jsonl: 2 tasks\n  [prompt] -> question\n"  # type: ignore[attr-defined]
