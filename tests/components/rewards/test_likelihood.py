import numpy as np
import pytest

from posttrain.components.rewards import RewardContext
from posttrain.components.rewards.likelihood import Likelihood
from tests.builders import ScriptedSampler
from tests.components.rewards.judging import attempt, score_all


class Model(ScriptedSampler):
    """Gives every token the log-probabilities -0.5, -1, -1.5, ..., by its place."""

    def __init__(self) -> None:
        super().__init__("judge")

    async def logp(
        self, token_ids: np.ndarray, *, temperature: float = 1.0, vectors: np.ndarray | None = None
    ) -> np.ndarray:
        return -0.5 * np.arange(1, len(token_ids), dtype=np.float32)


def values(mean: bool) -> list[float]:
    """Of completions of one and of three tokens after a prompt of two."""
    context = RewardContext(samplers={"judge": Model()})
    return [score.value for score in score_all(Likelihood(mean=mean), attempt("a"), attempt("a b c"), context=context)]


def test_by_hand() -> None:
    """The prompt's second token has -0.5, which does not count."""
    assert values(True) == pytest.approx([-1.0, (-1 - 1.5 - 2) / 3])
    assert values(False) == pytest.approx([-1.0, -4.5])
