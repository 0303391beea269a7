"""Numbers of an evaluation from judged answers."""

import pytest

from posttrain.evaluation.greedy import summarize
from posttrain.types import Score, Trajectory
from tests.builders import trajectory


def judged(answer: str | None, right: bool, confidence: float | None = None) -> Trajectory:
    score = Score(value=float(right), status="ok" if right else "wrong", answer=answer, confidence=confidence)
    return trajectory().scored(score)


def test_the_vote_of_the_samples_is_judged() -> None:
    """The greedy answer stands first and has no vote."""
    first = [judged("5", False), judged("4", True), judged("5", False), judged("4", True)]
    second = [judged("9", True), judged("8", False), judged("8", False), judged(None, False)]
    summary = summarize([first, second], correct_at=1.0)
    assert summary["accuracy"] == 0.5
    assert summary["voted"] == 0.5
    assert "voted_by_confidence" not in summary and "calibration" not in summary


def test_sure_answers_count_more() -> None:
    sampled = [judged("7", False, 0.2)] * 3 + [judged("8", True, 0.9)] * 2
    summary = summarize([[judged("8", True, 0.6), *sampled]], correct_at=1.0)
    assert summary["voted"] == 0.0
    assert summary["voted_by_confidence"] == 1.0
    assert summary["calibration"] == {
        "stated": 1.0,
        "confidence": pytest.approx(0.6),
        "calibration_error": pytest.approx(0.4),
        "brier": pytest.approx(0.16),
    }


def test_without_samples_there_is_no_vote() -> None:
    assert "voted" not in summarize([[judged("7", True)]], correct_at=1.0)
