"""Self-certainty of a rationale, added to the reward: how far its tokens' distributions are from uniform.

Source: Shop-R1, arXiv:2507.17842, equation 3, where the mean over the tokens of the rationale is added with the weight
0.005. The formula is printed as KL(p || uniform), divided once more by the size of the vocabulary; the work that it
cites has KL(uniform || p). They differ by orders of magnitude, so that the reading is a setting:

    kl_pu     mean of KL(p || uniform)                      (default)
    kl_up     mean of KL(uniform || p), the cited original
    printed   mean of KL(p || uniform) / V

All are 0 where the logits are equal. p is the distribution before the updates of the step, at the temperature of
sampling, V the number of tokens that are possible. A completion without a rationale has 0.

Each token of the rationale has its share of the mean, so that methods which learn from the sum of a rollout see the
mean, which does not grow with the length.
"""

from collections.abc import Mapping
from typing import Literal

import numpy as np
from pydantic import NonNegativeFloat

from posttrain.component import frozen
from posttrain.components.penalties import Penalty
from posttrain.components.rollouts import Spans
from posttrain.signals import OLD_CERTAINTY, OLD_ENTROPY, OLD_SELF_CERTAINTY, Signal
from posttrain.types import FloatArray, Trajectory


@frozen
class SelfCertainty(Penalty):
    """A bonus for tokens of which the model is sure."""

    coefficient: NonNegativeFloat = 0.005
    """Weight, in units of reward per nat (0.005 in the paper)."""
    tag: str = '"rationale"'
    """Part of the completion: a tag, or a key of JSON in quotation marks."""
    reading: Literal["kl_pu", "kl_up", "printed"] = "kl_pu"
    """Which divergence it is."""

    @property
    def needs(self) -> frozenset[Signal]:
        """Divergences from uniform, before the updates."""
        if self.reading == "printed":
            return frozenset({OLD_CERTAINTY, OLD_ENTROPY})
        return frozenset({OLD_CERTAINTY if self.reading == "kl_pu" else OLD_SELF_CERTAINTY})

    @property
    def tags(self) -> frozenset[str]:
        """The part whose tokens count."""
        return frozenset({self.tag})

    def in_reward(self, trajectory: Trajectory, signals: Mapping[Signal, FloatArray]) -> FloatArray:
        """[T] coefficient times each token's share of the mean, 0 outside the part."""
        nats_T, spans = self._nats(signals), trajectory.fact(Spans)
        inside_T = np.zeros(trajectory.num_trained, bool)
        for start, end in spans.ranges[self.tag] if spans is not None else ():
            inside_T[start:end] = True
        inside_T &= ~np.isnan(trajectory.behavior_logp)  # tokens that nobody sampled
        bonus_T = np.zeros(trajectory.num_trained, np.float64)
        bonus_T[inside_T] = self.coefficient * nats_T[inside_T] / max(int(inside_T.sum()), 1)
        return bonus_T.astype(np.float32)

    def _nats(self, signals: Mapping[Signal, FloatArray]) -> np.ndarray:
        """[T] the divergence; V is e to the sum of KL(p || uniform) and the entropy of p."""
        if self.reading == "kl_up":
            return signals[OLD_SELF_CERTAINTY].astype(np.float64)
        certainty_T = signals[OLD_CERTAINTY].astype(np.float64)
        if self.reading == "kl_pu":
            return certainty_T
        return np.asarray(certainty_T / np.exp(certainty_T + signals[OLD_ENTROPY].astype(np.float64)))
