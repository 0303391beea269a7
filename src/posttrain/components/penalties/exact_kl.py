"""The exact KL divergence from a reference at each token, over the whole vocabulary, differentiated.

Source: the anchor of ASFT, arXiv:2509.23753, equation 6: lambda KL(reference || p), with lambda = 0.05 in the paper and
0.1 in its release. Its gradient with respect to the logits is lambda (p - reference), on every token of the vocabulary:
also on those that were not sampled. The tokens need not be sampled from p, so that it holds for demonstrations as for
rollouts.

``forward`` makes p cover all that is likely under the reference. ``reverse``, KL(p || reference), only keeps p off what
is unlikely under the reference, with the gradient lambda p (log(p / reference) - KL).
`posttrain.components.penalties.kl` estimates either from the sampled token alone, without the sum over the vocabulary.

Differs: the mean is that of the stage's reducer over an optimizer step, where the release takes one over each
micro-batch.
"""

from typing import Literal

from pydantic import NonNegativeFloat

from posttrain.component import frozen
from posttrain.components.penalties import Penalty
from posttrain.signals import Signal
from posttrain.types import PerToken, Tokens


@frozen
class ExactKL(Penalty):
    """Exact KL divergence from a reference model."""

    coefficient: NonNegativeFloat = 0.05
    """Weight of the divergence, lambda, in units of the loss per nat (0.05: the paper's)."""
    direction: Literal["forward", "reverse"] = "forward"
    """KL(reference || p), or KL(p || reference)."""
    role: str = "reference"
    """The reference model, with the same vocabulary."""

    @property
    def needs(self) -> frozenset[Signal]:
        """The divergence."""
        return frozenset({self._divergence})

    @property
    def _divergence(self) -> Signal:
        return Signal("forward_kl" if self.direction == "forward" else "reverse_kl", of=self.role)

    def in_loss(self, tokens: Tokens) -> PerToken:
        """[T] coefficient times the divergence; the metric is the bare divergence, in nats."""
        kl_T = tokens[self._divergence]
        return PerToken(loss_T=self.coefficient * kl_T, metrics={"nats": kl_T.detach()})
