"""Two KL divergences, from the initial policy and from that of the step before, whose weights sum to a constant.

Source: KL-Convex of ReMix, arXiv:2507.06892: beta (lam KL(p || base) + (1 - lam) KL(p || previous)), in expectation
over states. In step t, counted from 1, lam = max(1 - 0.1 ceil(max(t - 50, 0) / 10), 0.5): 1 up to step 50, then 0.1
less in each started block of ten steps, and 0.5 from step 91 on.

The divergences are exact, over the whole vocabulary, since tokens of earlier policies are no samples of p.

Differs: t counts the steps in which something is learned. beta is not in the available text.
"""

import math
from dataclasses import replace
from typing import Annotated

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveInt

from posttrain.component import frozen
from posttrain.components.penalties import Penalty, State
from posttrain.signals import Signal
from posttrain.types import Batch, PerToken, Tokens

Share = Annotated[float, Field(ge=0.0, le=1.0)]


@frozen
class ConvexKL(Penalty):
    """A convex combination of two KL divergences."""

    coefficient: NonNegativeFloat = 0.001
    """beta: weight of both together, in units of the loss per nat."""
    share: Share = 1.0
    """lam at first: the share of the divergence from `base`."""
    hold: NonNegativeInt = 50
    """Steps with this share (50 in the paper)."""
    every: PositiveInt = 10
    """Steps of a block, in each of which the share is lower by `fall` (10 in the paper)."""
    fall: Share = 0.1
    """How much lower (0.1 in the paper)."""
    final: Share = 0.5
    """Lowest share (0.5 in the paper)."""
    base: str = "reference"
    """Role of the initial policy."""
    previous: str = "previous"
    """Role of the policy of the step before."""

    @property
    def needs(self) -> frozenset[Signal]:
        """Both divergences."""
        return frozenset(self._divergences)

    @property
    def _divergences(self) -> tuple[Signal, Signal]:
        return Signal("reverse_kl", of=self.base), Signal("reverse_kl", of=self.previous)

    def start(self) -> State:
        """State before the first step."""
        return {"steps": 0}

    def at(self, state: State) -> "ConvexKL":
        """The penalty with the share of a step."""
        blocks = math.ceil(max(state["steps"] - self.hold, 0) / self.every)
        return replace(self, share=max(self.share - self.fall * blocks, min(self.final, self.share)))

    def observe(self, state: State, batch: Batch) -> State:
        """One step more."""
        return {"steps": state["steps"] + 1}

    def in_loss(self, tokens: Tokens) -> PerToken:
        """[T] coefficient times the combination; metrics are both divergences in nats, and the share."""
        base_T, previous_T = (tokens[signal] for signal in self._divergences)
        loss_T = self.coefficient * (self.share * base_T + (1.0 - self.share) * previous_T)
        measured = {"base": base_T.detach(), "previous": previous_T.detach()}
        share = loss_T.detach().new_full((1,), self.share)
        return PerToken(loss_T=loss_T, metrics={**measured, "share": share})
