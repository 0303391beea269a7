"""Imitation in latent steps: the likelihood of labels and of text, and the distance of drawn vectors from merged ones.

Source: CoLaR, Tan et al. 2025, arXiv:2505.16552, and its release (xiaomi-research/colar at 4b6ae9a0): the cross-entropy
of a step's label and of text, and of the steps and the mark after them either the squared error of a drawn vector
(``error``, its default) or minus the log-density (``density``), both a mean over dimensions and then over steps.

The second term is scaled so that the mean over a sequence's tokens is the mean over its steps: use the reducer
``sequences``. Both are multiplied by the advantage, which is 1 in imitation.

Differs: the squared error is its expectation over draws, (mean - target)^2 + std^2. The mean over steps is that of each
sequence. The entropy and the second pass over drawn embeddings, both of weight 0 in the release, are left out.
"""

from typing import Literal

from pydantic import NonNegativeFloat

from posttrain.component import frozen
from posttrain.components.objectives import Objective
from posttrain.signals import LABEL_LOGP, LATENT_ERROR, LATENT_LOGP, Signal
from posttrain.types import PerToken, Tokens


@frozen
class Compressed(Objective):
    """Minus the log-probability of labels and text, and the loss of vectors."""

    form: Literal["error", "density"] = "error"
    """Loss of vectors."""
    weight: NonNegativeFloat = 1.0
    """Its weight (1 in the release)."""

    @property
    def exceptions(self) -> frozenset[str]:
        """``reinforce``: the log-probability of a label is not that of its step."""
        return frozenset({"reinforce"})

    @property
    def uses_old(self) -> bool:
        """False."""
        return False

    @property
    def needs(self) -> frozenset[Signal]:
        """Of the labels, and of the form."""
        return frozenset({LABEL_LOGP, LATENT_ERROR if self.form == "error" else LATENT_LOGP})

    def __call__(self, tokens: Tokens) -> PerToken:
        """Loss of each trained token."""
        latent_T = tokens[LATENT_ERROR] if self.form == "error" else -tokens[LATENT_LOGP]
        some_T = (latent_T.detach() != 0).to(latent_T.dtype)
        share_N = tokens.length_N / tokens.sequence_sum(some_T).clamp(min=1.0)
        loss_T = self.weight * share_N[tokens.sequence_T] * latent_T - tokens[LABEL_LOGP]
        means = tokens.sequence_sum(latent_T.detach()) / tokens.sequence_sum(some_T).clamp(min=1.0)
        return PerToken(loss_T=tokens.advantage_T * loss_T, metrics={f"latent/{self.form}": means})
