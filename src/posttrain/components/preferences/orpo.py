"""ORPO: imitation of the chosen completion plus the log odds ratio of the pair, without a reference.

Source: Hong et al. 2024, arXiv:2403.07691, equations 2 to 7, and its released code. With m the mean log-probability of
a completion's tokens, P = exp(m) and odds = P / (1 - P):

    loss = -m(chosen) - weight log sigmoid(log odds(chosen) - log odds(rejected))

The odds grow without bound as P reaches 1, so P is taken to be at most 1 - 1e-6, beyond which the second term has no
gradient.

Differs: the imitation is of the completion alone, as in equation 6; the code's default also imitates the prompt.
"""

from typing import Final

from pydantic import NonNegativeFloat

from posttrain.component import frozen
from posttrain.components.preferences import Pairs, PerPair, PreferenceLoss

_LARGEST: Final = -1e-6
"""Largest mean log-probability whose odds are computed."""


@frozen
class ORPO(PreferenceLoss):
    """Odds ratio preference optimization."""

    weight: NonNegativeFloat = 0.1
    """Weight of the odds ratio, the paper's lambda (0.1 to 0.5 there); 0 is imitation of the chosen completions."""

    def __call__(self, pairs: Pairs) -> PerPair:
        """Loss of each pair."""
        from torch.nn.functional import logsigmoid

        mean_P2 = pairs.logp_P2 / pairs.length_P2.clamp(min=1)
        bounded_P2 = mean_P2.clamp(max=_LARGEST)
        log_odds_P2 = bounded_P2 - (-bounded_P2.expm1()).log()
        ratio_P = log_odds_P2[:, 0] - log_odds_P2[:, 1]
        loss_P = -mean_P2[:, 0] - self.weight * logsigmoid(ratio_P)
        seen = {
            "pair_accuracy": (ratio_P > 0).to(ratio_P.dtype),
            "pair_margin": ratio_P,
            "chosen_logp": pairs.logp_P2[:, 0],
            "rejected_logp": pairs.logp_P2[:, 1],
            "chosen_nll": -mean_P2[:, 0],
        }
        return PerPair(loss_P=loss_P, metrics={name: values.detach() for name, values in seen.items()})
