"""What users get wrong, from the command line to the message: rewards that cannot be called, and that fail."""

from collections.abc import Callable
from pathlib import Path

import pytest

from posttrain.cli import main
from posttrain.runs.store import RunStore
from tests.cli.mistakes.given import REWARDS, SMALL, Refused


@pytest.mark.parametrize(
    ("reward", "message"),
    [
        ("mine.py:fin", "reward function 'mine.py:fin': no function 'fin' in {here}/mine.py; did you mean 'fine'?"),
        ("mime.py:fine", "reward function 'mime.py:fine': no file {here}/mime.py (working in {here}); did you mean"),
        ("mine.py:strange", "reward function 'mine.py:strange' takes (weight, height). there is no value"),
        ("broken.py:fine", "{here}/broken.py does not run: SyntaxError: "),
        ("mine.py", "a function is written mine.py:NAME"),
    ],
)
def test_a_reward_that_cannot_be_called(refused: Refused, here: Path, reward: str, message: str) -> None:
    Path("broken.py").write_text("def fine(completion)\n    return 1\n")
    assert message.format(here=here) in refused("run", "grpo", *SMALL, f"reward={reward}")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (
            "reward=mine.py:raises",
            "ConnectionError: the judge does not answer (mine.py line 6: raise ConnectionError(",
        ),
        ("reward=mine.py:no_number", "the function returned nan"),
    ],
)
def test_a_run_that_nobody_can_judge_stops_with_the_evidence(
    ended: Callable[..., tuple[int, str]], change: str, why: str
) -> None:
    code, message = ended("run", "grpo", *SMALL, change)
    assert code == 3
    assert message.startswith("4 of 4 rollouts of this step could not be scored, so it is not learned from.")
    assert why in message
    with RunStore.open(Path("runs/grpo-1"), reading=True) as run:
        assert [event["message"] for event in run.events() if event["kind"] == "alarm"] == [message]
        assert run.evaluations()[0]["accuracy"] is None
        assert run.evaluations()[0]["errors"] == 2
        rows = [*run.rollouts(1), *run.evaluation_rows(0)]
        assert len(rows) == 4 + 2
        for row in rows:
            assert row["score_status"] == "error"
            assert row["reward"] is None
            assert why in row["score_explanation"]


def test_without_answers_nothing_is_sampled(ended: Callable[..., tuple[int, str]]) -> None:
    code, message = ended("run", "grpo", *SMALL, "tasks.columns.answer=null")
    assert code == 2 and "has an answer, which match compares with" in message
    assert not Path("runs/grpo-1/rollouts").exists()


@pytest.mark.slow
def test_a_run_goes_on_with_a_repaired_reward(ended: Callable[..., tuple[int, str]]) -> None:
    assert ended("run", "grpo", *SMALL, "reward=mine.py:raises")[0] == 3
    Path("mine.py").write_text(REWARDS.replace('raise ConnectionError("the judge does not answer")', "return 0.5"))
    assert main(["resume", "runs/grpo-1"]) == 0
    with RunStore.open(Path("runs/grpo-1"), reading=True) as run:
        assert [entry["reward"] for entry in run.metrics()] == [0.5, 0.5]
        assert {row["reward"] for step in (1, 2) for row in run.rollouts(step)} == {0.5}
        assert run.events() == []
        assert run.summary()["accuracy_after"] == 0.0


def test_scores_that_fail_now_and_then_are_recorded_and_not_learned_from(
    capfd: pytest.CaptureFixture[str],
) -> None:
    changes = ["reward=mine.py:sometimes", "max_grader_errors=1.0", "filters={}", "rollout.n=8"]
    assert main(["run", "grpo", *SMALL, *changes]) == 0
    with RunStore.open(Path("runs/grpo-1"), reading=True) as run:
        rows = [row for step in run.rollout_steps() for row in run.rollouts(step)]
        failed = [row for row in rows if row["score_status"] == "error"]
        assert 0 < len(failed) < len(rows) == 32
        for row in failed:
            assert row["reward"] is None and row["dropped_reason"] == "grader error"
            assert row["score_explanation"].startswith("ValueError: odd (mine.py line 13")
        shares = [entry["grader_errors"] for entry in run.metrics()]
        assert sum(shares) / 2 == pytest.approx(len(failed) / 32)
