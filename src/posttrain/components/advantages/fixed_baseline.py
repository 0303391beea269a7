"""REINFORCE with a constant baseline, and different factors for rewards above and below it.

Source: Le Roux et al. 2025 (TOPR), arXiv:2503.14286, where the baseline c of rewards R = +1 and -1 decides the weight
of the correct samples: of the weight |R - c| of all samples they have the share p (1 - c) / (1 + (1 - 2 p) c), with p
their share of the samples. A negative c raises it, a positive one lowers it. The metric ``effective_positives`` is that
share for any rewards: the sum of R - c over those above c, of the sum of |R - c|. Two factors set it directly: with
rewards of +1 and -1, `positive` 0.1 is W-REINFORCE (Zhu et al. 2025, arXiv:2506.01347, section 5).

Differs: nothing known.
"""

import numpy as np
from pydantic import NonNegativeFloat

from posttrain.component import frozen
from posttrain.components.advantages import Advantage, State
from posttrain.components.advantages._arithmetic import per_token
from posttrain.types import Batch, Credit


@frozen
class FixedBaseline(Advantage):
    """Reward minus a constant, times a factor by its sign, the same for every token of a trajectory."""

    baseline: float = 0.0
    """c, in units of reward. With ratings of 1 and 0, 0.5 makes them +0.5 and -0.5."""
    positive: NonNegativeFloat = 1.0
    """Factor on differences above 0."""
    negative: NonNegativeFloat = 1.0
    """Factor on differences below 0. With 0, such rollouts have no gradient and still count in means over tokens."""

    def __call__(self, state: State, batch: Batch) -> tuple[State, Credit]:
        """Subtract the baseline, and multiply by the factor of the sign."""
        advantage_N = batch.return_N - self.baseline
        advantage_N *= np.where(advantage_N > 0, self.positive, self.negative)
        weight, metrics = float(np.abs(advantage_N).sum()), {}
        if weight:
            metrics["effective_positives"] = float(advantage_N[advantage_N > 0].sum()) / weight
        return state, Credit(advantages=per_token(advantage_N, batch), metrics=metrics)
