"""Imitation with weights by the losses that follow a token, on inputs that are mixed with the model's own choices.

Source: Intuitive Fine-Tuning, Hua et al. 2024, arXiv:2405.11870, and its released code. A first pass without gradient
gives the model's choice for each target token, the most likely one. In the second pass the input embedding of a target
token is (1 - lambda) times its own plus lambda times that of the choice, and l_t is minus the log-probability of the
true token. With S_t = sum over k >= t of gamma^(k - t) l_k the loss of a sequence is the sum of l_t S_t over the sum of
S_t, and that of a batch the mean over sequences. The gradient goes through the embeddings of both and, as in the
release, through the weights.

The reducer must be ``sequences``, the mean over sequences of means over tokens. With gamma = 0 and lambda = 0 it is
imitation with that reducer.

Differs: of the release's variants the default is there (losses as the basis, L1 norm, the future). A sequence whose
losses are all 0 has the loss 0, where the release divides 0 by 0.
"""

from typing import TYPE_CHECKING, Annotated, ClassVar

from pydantic import Field

from posttrain.component import frozen
from posttrain.components.objectives import Objective
from posttrain.types import PerToken, Tokens

if TYPE_CHECKING:
    import torch

Share = Annotated[float, Field(ge=0.0, le=1.0)]
LEAST = 1e-12
"""Smallest sum of a sequence's weights, in nats."""


@frozen
class Intuitive(Objective):
    """Minus log-probability, weighted by the discounted losses from the token on."""

    exceptions: ClassVar[frozenset[str]] = frozenset({"zero_advantage", "reinforce", "bandit"})
    uses_old: ClassVar[bool] = False

    mixing: Share = 0.2
    """lambda: share of the model's own choice in the input embedding of a target token (0.2 in the release)."""
    gamma: Share = 0.95
    """Discount of later losses per token (0.95 in the release); 0 gives every token of a sequence the same weight."""
    detached: bool = False
    """Whether weights are not differentiated; the release differentiates them."""

    @property
    def foresight(self) -> float:
        """The setting `mixing`."""
        return self.mixing

    def __call__(self, tokens: Tokens) -> PerToken:
        """Loss of each trained token; the metric is its weight, 1 on average over a sequence."""
        loss_T = -tokens.logp_T
        weight_T = self._weights(tokens, loss_T.detach() if self.detached else loss_T)
        return PerToken(loss_T=weight_T * loss_T, metrics={"intuition": weight_T.detach()})

    def _weights(self, tokens: Tokens, loss_T: "torch.Tensor") -> "torch.Tensor":
        """[T] n S_t over the sum of S over the sequence's n tokens; 1 where gamma is 0."""
        if self.gamma == 0.0:
            return loss_T.new_ones(len(loss_T))
        length_N, sequence_T = tokens.length_N, tokens.sequence_T
        first_N = length_N.cumsum(0) - length_N
        place_T = sequence_T.new_ones(len(loss_T)).cumsum(0) - 1 - first_N[sequence_T]
        longest = int(length_N.max()) if len(length_N) else 0
        loss_NL = loss_T.new_zeros(len(length_N), longest).index_put((sequence_T, place_T), loss_T)
        ahead_LL = place_T.new_ones(longest, longest).cumsum(0) - place_T.new_ones(longest, longest).cumsum(1)
        discount_LL = (self.gamma ** ahead_LL.clamp(min=0).to(loss_T.dtype)).where(ahead_LL >= 0, loss_T.new_zeros(()))
        future_T = (loss_NL @ discount_LL)[sequence_T, place_T]
        total_T = tokens.sequence_sum(future_T).clamp(min=LEAST)[sequence_T]
        return future_T * length_N[sequence_T] / total_T
