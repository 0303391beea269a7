"""A user's own rows and own function, with the command as the README gives it."""

import importlib.util
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from posttrain.cli import main
from posttrain.runs.store import RunStore

COMMAND = ["run", "grpo", "model=pebble", "tasks=mine.jsonl", "reward=./mine.py:score", "steps=20"]
REWARD = """
def score(completion, task):
    "Nearer is better, and so is shorter."
    found = "".join(c for c in completion.split("####")[-1] if c.isdigit())[:3]
    near = 1 / (1 + abs(int(found) - int(task.answer))) if found else 0.0
    return near - len(completion) / 1000
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    threads = torch.get_num_threads()
    monkeypatch.chdir(tmp_path)
    sums = [(a, b) for a in range(3, 30, 4) for b in range(5, 50, 6)]
    rows = [{"question": f"Q: {a}+{b}\nA:", "answer": str(a + b)} for a, b in sums]
    Path("mine.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    Path("mine.py").write_text(REWARD)
    yield
    torch.set_num_threads(threads)


@pytest.mark.slow
def test_two_columns_and_a_function_are_enough(capfd: pytest.CaptureFixture[str]) -> None:
    small = ["steps=2", "prompts=4", "rollout.n=4", "evaluation.holdout=10", "threads=1"]
    assert main([*COMMAND, *small, "--json"]) == 0
    summary = json.loads(capfd.readouterr().out)
    assert summary["steps"] == 2
    assert summary["tasks_evaluated"] == 10
    assert summary["verifier_is_training_reward"] is True
    assert any("scored by the training reward itself" in warning for warning in summary["warnings"])
    assert json.loads(Path("runs/grpo-1/summary.json").read_text()) == summary

    specification = importlib.util.spec_from_file_location("mine", "mine.py")
    assert specification and specification.loader
    mine = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(mine)
    with RunStore.open(Path("runs/grpo-1"), reading=True) as run:
        rows = [row for step in (1, 2) for row in run.rollouts(step)]
        assert len(rows) == 2 * 4 * 4
        for row in rows:
            task = type("Task", (), {"answer": row["answer"]})
            assert row["reward"] == mine.score(row["completion"], task), "every reward can be worked out again"
        assert len({row["reward"] for row in rows}) > 1
        hashes = run.environment()["reward_files_sha256"]
        assert [Path(name).name for name in hashes] == ["mine.py"]


@pytest.mark.slow
def test_the_command_as_it_is_given(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(COMMAND) == 0
    printed = capfd.readouterr().out
    assert "grpo: 20 steps in " in printed
    assert "report  runs/grpo-1/report.html" in printed
    assert main(["eval", "runs/grpo-1", "--json"]) == 0
    measured = json.loads(capfd.readouterr().out)
    after = json.loads(Path("runs/grpo-1/summary.json").read_text())["accuracy_after"]
    assert measured["accuracy"] == pytest.approx(after, abs=0.02)
    assert main(["sample", "runs/grpo-1", "Q: 7+5\\nA:", "--temperature", "0"]) == 0
    assert capfd.readouterr().out.strip()


def test_special_tokens_in_rows_are_counted_and_taken_for_text(capfd: pytest.CaptureFixture[str]) -> None:
    rows = [{"question": f"Q: {n}+{n}{'<|end|>' * (n % 2)}\nA:", "answer": str(2 * n)} for n in range(10)]
    Path("mine.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    command = [*COMMAND, "prompts=2", "rollout.n=2", "evaluation.holdout=4", "threads=1", "--dry-run"]
    assert main(command) == 0
    said = "5 of 10 tasks hold <|end|> in their texts, each taken for "
    assert f"{said}text, not a special token; if they are intended, set" in capfd.readouterr().out
    assert main([*command, "tasks.special_tokens=allow"]) == 0
    assert f"{said}a special token, as tasks.special_tokens=allow sets" in capfd.readouterr().out


SMALL = ["steps=1", "prompts=2", "rollout.n=2", "evaluation.holdout=4", "threads=1"]


def test_a_dry_run_in_which_scoring_fails_exits_with_1(capfd: pytest.CaptureFixture[str]) -> None:
    Path("mine.py").write_text("def score(completion, task):\n    return 1 / 0\n")
    assert main([*COMMAND[:-1], *SMALL, "--dry-run"]) == 1
    said = "stage rl: 4 of 4 rollouts could not be scored. The first failure: ZeroDivisionError"
    printed, told = capfd.readouterr()
    assert f"errors\n  {said}" in printed
    assert told.startswith(f"error: {said}") and told.count("\n") == 1
    assert main([*COMMAND[:-1], *SMALL, "--dry-run", "--json"]) == 1
    printed, told = capfd.readouterr()
    assert json.loads(printed)["errors"] and told.startswith(f"error: {said}")


def test_a_dry_run_on_rows_without_answers_names_one(capfd: pytest.CaptureFixture[str]) -> None:
    rows = [{"question": f"{n}+{n}=", "answer": "" if n % 2 else str(2 * n)} for n in range(10)]
    Path("mine.json").write_text(json.dumps(rows))
    command = ["run", "grpo", "tasks=mine.json", "rollout.sampling.max_tokens=8", *SMALL, "--dry-run"]
    assert main(command) == 1
    told = capfd.readouterr().err
    assert "rollouts could not be scored. The first failure: task '" in told and "give its row an 'answer'" in told


@pytest.mark.slow
def test_warnings_are_in_the_dry_run_and_in_the_record(capfd: pytest.CaptureFixture[str]) -> None:
    changes = [*COMMAND, *SMALL[:3], "evaluation.holdout=500", "threads=1"]
    assert main([*changes, "--dry-run", "--json"]) == 0
    twice, warning = json.loads(capfd.readouterr().out)["warnings"]
    assert twice == "'steps=20' does nothing, because 'steps=1' sets stages.rl.steps after it"
    assert warning.startswith("evaluation.holdout is 500, but only 28 tasks could be held out")
    assert main(changes) == 0
    assert f"warning: {warning}" in capfd.readouterr().out.replace("\n", " ")
    with RunStore.open(Path("runs/grpo-1"), reading=True) as run:
        assert [event["message"] for event in run.events() if event["kind"] == "warning"] == [twice, warning]
