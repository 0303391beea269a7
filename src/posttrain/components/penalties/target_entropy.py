"""The distance of the policy's entropy from a target: raises it below the target, and lowers it above.

Source: Targeted Entropy Regularization of Confucius3-Math, arXiv:2506.18330, section 4: the loss has the term
coefficient * |H - H*|, with H the mean entropy of the policy over the tokens of the batch, H* = 0.55 and the
coefficient 0.001. The gradient flows through H: its size is constant, and it is 0 exactly at the target.

Differs: the side of the target is that of H before the updates of the step, over the step's rollouts; the term is
linear in the entropy from there on. With one update per step this is the same gradient.
"""

from dataclasses import replace

import numpy as np
from pydantic import NonNegativeFloat

from posttrain.component import frozen
from posttrain.components.penalties import Penalty, State
from posttrain.signals import ENTROPY, OLD_ENTROPY, Signal
from posttrain.types import Batch, PerToken, Tokens


@frozen
class TargetEntropy(Penalty):
    """Coefficient times the distance of the mean entropy from the target."""

    coefficient: float = 0.001
    """Weight in units of the loss per nat (0.001 in the paper); a negative one leads away from the target."""
    target: NonNegativeFloat = 0.55
    """H*: entropy of a token's distribution, in nats (0.55 in the paper)."""

    @property
    def needs(self) -> frozenset[Signal]:
        """The exact entropy over the whole vocabulary, before the updates and in the pass that trains."""
        return frozenset({ENTROPY, OLD_ENTROPY})

    def start(self) -> State:
        """State before the first step: no batch seen."""
        return {"side": 1.0}

    def at(self, state: State) -> "TargetEntropy":
        """The penalty on the side of the target where the entropy is: with the opposite sign below it."""
        return replace(self, coefficient=state["side"] * self.coefficient)

    def observe(self, state: State, batch: Batch) -> State:
        """The side of the target on which the mean entropy of the batch is; 0 at the target."""
        entropy_T = np.concatenate([np.zeros(0), *batch.signals[OLD_ENTROPY]])
        if not len(entropy_T):
            return state
        return {"side": float(np.sign(entropy_T.mean(dtype=np.float64) - self.target))}

    def in_loss(self, tokens: Tokens) -> PerToken:
        """[T] coefficient times entropy above the target; the metric is the entropy before the updates."""
        above_T = tokens[ENTROPY] - self.target
        return PerToken(loss_T=self.coefficient * above_T, metrics={"nats": tokens[OLD_ENTROPY].detach()})
