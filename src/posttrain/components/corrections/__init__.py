"""Importance weights between learner and sampler, for engines whose probabilities differ from the learner's."""

from typing import TYPE_CHECKING

from posttrain.component import Component
from posttrain.signals import OLD_LOGP, Signal
from posttrain.types import Tokens

if TYPE_CHECKING:
    import torch


class Correction(Component):
    """A factor on each token's loss, not differentiated."""

    @property
    def needs(self) -> frozenset[Signal]:
        """Columns that it reads: the learner's own log-probabilities before the updates, in place of the sampler's."""
        return frozenset({OLD_LOGP})

    def __call__(self, tokens: Tokens) -> "torch.Tensor":
        """[T] factor from the gap between `old_logp_T` and `behavior_logp_T`."""
        raise NotImplementedError
