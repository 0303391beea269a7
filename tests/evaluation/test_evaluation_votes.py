"""The summary of an evaluation from scored answers."""

from dataclasses import replace

import pytest

from posttrain.evaluation.greedy import summarize
from posttrain.types import Score, Trajectory
from tests.builders import task, trajectory


def scored(answer: str | None, correct: bool, confidence: float | None = None) -> Trajectory:
    score = Score(value=float(correct), status="ok" if correct else "wrong", answer=answer, confidence=confidence)
    return trajectory().scored(score)


def test_the_vote_of_the_samples_is_scored() -> None:
    """The greedy answer stands first and has no vote."""
    first = [scored("5", False), scored("4", True), scored("5", False), scored("4", True)]
    second = [scored("9", True), scored("8", False), scored("8", False), scored(None, False)]
    summary = summarize([first, second], correct_at=1.0)
    assert summary["accuracy"] == 0.5
    assert summary["voted"] == 0.5
    assert "voted_by_confidence" not in summary and "calibration" not in summary


def test_sure_answers_count_more() -> None:
    sampled = [scored("7", False, 0.2)] * 3 + [scored("8", True, 0.9)] * 2
    summary = summarize([[scored("8", True, 0.6), *sampled]], correct_at=1.0)
    assert summary["voted"] == 0.0
    assert summary["voted_by_confidence"] == 1.0
    assert summary["calibration"] == {
        "stated": 1.0,
        "confidence": pytest.approx(0.6),
        "calibration_error": pytest.approx(0.4),
        "brier": pytest.approx(0.16),
    }


def test_without_samples_there_is_no_vote() -> None:
    assert "voted" not in summarize([[scored("7", True)]], correct_at=1.0)


def test_accuracy_by_domain() -> None:
    """Two of three sums and none of one word; an error is left out."""
    answers = [("sums", 1.0), ("sums", 0.0), ("words", 0.0), ("sums", 1.0)]
    answered = [[trajectory(reward=value, of=replace(task(), domain=domain))] for domain, value in answers]
    answered.append([replace(answered[0][0], score=Score(value=0.0, status="error"))])
    assert summarize(answered, 1.0)["accuracy_by_domain"] == {"sums": pytest.approx(2 / 3), "words": 0.0}
    assert "accuracy_by_domain" not in summarize(answered[:2], 1.0)
