"""The partial reward: by hand, and for whom it is."""

from dataclasses import replace

import numpy as np
import pytest

from posttrain.components.penalties.agreement import Agreement
from posttrain.signals import OLD_EMBEDDING, OLD_SCORE, SHOWN, Signal
from posttrain.types import FloatArray, Score, Trajectory
from tests.builders import trajectory

WRONG = Score(value=0.1, status="wrong", answer="41")


def signals(shown: float = 1.0) -> dict[Signal, FloatArray]:
    """Two tokens of weights 3/4 and 1/4: the embedding is (3, 1) / 4."""
    return {
        OLD_EMBEDDING: np.array([[1.0, 0.0], [0.0, 1.0]], np.float32),
        OLD_SCORE: np.array([np.log(3.0), 0.0], np.float32),
        SHOWN: np.array([[shown, 0.0], [shown, 0.0]], np.float32),
    }


def added(score: Score, shown: float = 1.0) -> list[float]:
    rollout: Trajectory = replace(trajectory(logp=[-1.0, -1.0]), score=score)
    found = Agreement().in_reward(rollout, signals(shown))
    assert found is not None
    return found.tolist()


def test_a_wrong_answer_gets_more_where_it_agrees() -> None:
    assert added(WRONG) == pytest.approx([0.0, 0.1 + 0.1 * 3 / np.sqrt(10)])
    assert added(WRONG, -1.0) == pytest.approx([0.0, 0.1 - 0.1 * 3 / np.sqrt(10)])
    assert added(WRONG, 0.0) == pytest.approx([0.0, 0.1]), "without a direction there is no cosine"


def test_for_nobody_else() -> None:
    assert added(Score(value=1.0, status="ok", answer="42")) == [0.0, 0.0]
    assert added(Score(value=0.0, status="wrong")) == [0.0, 0.0]
    assert added(WRONG, float("nan")) == [0.0, 0.0]
