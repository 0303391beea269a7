"""IPO: regression of the margin over the reference on a fixed target, so that it stays bounded.

Source: Azar et al. 2023, arXiv:2310.12036, equation 17. With s the log-probability of a completion and
h = [s(chosen) - s(rejected)] - [the same under the reference]:

    loss = (h - 1 / (2 beta))^2

Differs: nothing known. Some implementations take s per token; `average` does.
"""

from pydantic import PositiveFloat

from posttrain.component import frozen
from posttrain.components.preferences import Pairs, PerPair, PreferenceLoss
from posttrain.signals import Signal, logp_of


@frozen
class IPO(PreferenceLoss):
    """Identity preference optimization."""

    beta: PositiveFloat = 0.1
    """The target margin is 1 / (2 beta), in nats; smaller regularizes less towards the reference."""
    average: bool = False
    """Whether log-probabilities are means over a completion's tokens, rather than sums."""
    reference: str = "reference"
    """The reference: a role, or ``old`` for the policy at the start of the step."""

    @property
    def needs(self) -> frozenset[Signal]:
        """The reference's log-probabilities."""
        return frozenset({logp_of(self.reference)})

    def __call__(self, pairs: Pairs) -> PerPair:
        """Loss of each pair."""
        gain_P2 = pairs.logp_P2 - pairs.reference_logp_P2[logp_of(self.reference)]
        if self.average:
            gain_P2 = gain_P2 / pairs.length_P2
        margin_P = gain_P2[:, 0] - gain_P2[:, 1]
        seen = {
            "pair_accuracy": (margin_P > 0).to(margin_P.dtype),
            "pair_margin": margin_P,
            "chosen_logp": pairs.logp_P2[:, 0],
            "rejected_logp": pairs.logp_P2[:, 1],
        }
        metrics = {name: values.detach() for name, values in seen.items()}
        return PerPair(loss_P=(margin_P - 0.5 / self.beta) ** 2, metrics=metrics)
