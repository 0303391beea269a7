"""Another objective, kept for the tokens of each sequence with the highest entropy.

Source: the entropy filter of Prefix-RFT, Huang et al. 2025, arXiv:2507.01679 (the 20 % of a demonstration's tokens with
the highest entropy); for sampled tokens, Wang et al. 2025, arXiv:2506.01939 (by steps: `advantages/top_entropy`).

Differs: both papers pool the tokens of a batch; here each sequence keeps its own share, so that the result does not
depend on the micro-batches. Of n tokens n - floor(n (1 - share)) are kept, the earlier ones of equal entropy. The
entropy is that of the weights being trained, not differentiated; other tokens have a loss of 0 and still count where
the loss is averaged.
"""

from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from posttrain.component import frozen
from posttrain.components.objectives import Objective
from posttrain.signals import ENTROPY, Signal
from posttrain.types import PerToken, Tokens

if TYPE_CHECKING:
    import torch


@frozen
class TopEntropy(Objective):
    """Keeps the loss of a sequence's tokens with the highest entropy."""

    objective: Objective
    """The objective whose loss is kept."""
    share: Annotated[float, Field(ge=0.0, le=1.0)] = 0.2
    """Share of each sequence's tokens, in [0, 1] (0.2 in both papers)."""

    @property
    def foresight(self) -> float:
        """That of the objective."""
        return self.objective.foresight

    @property
    def needs(self) -> frozenset[Signal]:
        """The entropy, and the signals of the objective."""
        return self.objective.needs | {ENTROPY}

    @property
    def whole_groups(self) -> bool:
        """Whether the objective compares the sequences of a group."""
        return self.objective.whole_groups

    @property
    def exceptions(self) -> frozenset[str]:
        """Those of the objective, and ``reinforce``, since most tokens have no gradient."""
        return self.objective.exceptions | {"reinforce"}

    def __call__(self, tokens: Tokens) -> PerToken:
        """Loss of each trained token; the metric is the entropy of the kept ones."""
        result = self.objective(tokens)
        kept_T = self._kept(tokens)
        metrics = {**result.metrics, "kept_entropy": tokens[ENTROPY].detach()[kept_T]}
        return PerToken(loss_T=result.loss_T * kept_T, metrics=metrics)

    def _kept(self, tokens: Tokens) -> "torch.Tensor":
        """[T] whether each token is among those of the highest entropy of its sequence."""
        by_entropy_T = tokens[ENTROPY].detach().argsort(descending=True, stable=True)
        order_T = by_entropy_T[tokens.sequence_T[by_entropy_T].argsort(stable=True)]
        # Rounded first: 5 * (1 - 0.8) is a little below 1 otherwise.
        count_N = tokens.length_N - (tokens.length_N * (1.0 - self.share)).double().round(decimals=6).floor().long()
        start_N = tokens.length_N.cumsum(0) - tokens.length_N
        place_T = start_N.new_ones(len(order_T)).cumsum(0) - 1 - start_N[tokens.sequence_T[order_T]]
        kept_T = tokens.demonstrated_T.new_zeros(len(order_T))
        kept_T[order_T] = place_T < count_N[tokens.sequence_T[order_T]]
        return kept_T
