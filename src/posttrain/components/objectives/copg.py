"""CoPG: regression of the difference of two completions' log-ratios on their difference in reward, on or off policy.

Source: Flet-Berliac et al. 2024 (Contrastive Policy Gradient), arXiv:2406.19185, equations 7 to 25. With R the reward,
d = log pi(y) - log reference(y) summed over the completion, and R_b = R - b d, the loss of two completions is

    (R_beta(y) - R_beta(y'))^2 / (2 beta),

whose gradient is -(R_beta(y) - R_beta(y')) (gradient of log pi(y) - gradient of log pi(y')). Each completion is the
other's baseline. With this baseline the gradient vanishes at pi = reference exp(R / beta) / Z and nowhere else, for
completions from any distribution, so that there is no importance weight and no clipping. On policy it is
twice the gradient of RLOO with the KL in the reward. Two completions of equal rewards are a pair too: the
loss pulls them to one log-ratio.

More than two completions: all pairs, as in Command A (Cohere 2025, arXiv:2504.00698), which divides by one less than
their number. IPO is a case of it: a difference of 1/2 between chosen and rejected gives beta / 2 times the loss of IPO.

The reward is the advantage of a completion's last token, of which only differences within the group count: `group_mean`
with ``scale="none"`` gives the rewards unchanged.

Differs: the paper maximises (R_{beta/2}(y) - R_{beta/2}(y')) (d - d'), which has the same gradient; its text states
minimise. The square is used because it is 0 at the optimum. A group counts the mean of its pairs.
"""

from typing import ClassVar

from pydantic import PositiveFloat

from posttrain.component import frozen
from posttrain.components.objectives import Objective
from posttrain.components.objectives._pairs import difference, every_two
from posttrain.components.preferences import spread
from posttrain.signals import Signal, logp_of
from posttrain.types import PerToken, Tokens


@frozen
class CoPG(Objective):
    """Squared difference between the reward gap and the scaled log-ratio gap of two completions."""

    whole_groups: ClassVar[bool] = True
    exceptions: ClassVar[frozenset[str]] = frozenset({"zero_advantage", "reinforce"})
    """Equal rewards pull log-ratios together, and only differences of advantages count."""

    beta: PositiveFloat = 0.06
    """Reward per nat of log-ratio; smaller lets the policy go further from the reference (for summaries 0.06 was best,
    0.03 to 0.1 stable)."""
    reference: str = "reference"
    """The role of the reference."""

    @property
    def needs(self) -> frozenset[Signal]:
        """The reference's log-probabilities."""
        return frozenset({logp_of(self.reference)})

    def __call__(self, tokens: Tokens) -> PerToken:
        """[T] the mean loss of the pairs in each token's group; metrics are of pairs: the margin of log-ratios, in the
        direction of the reward where rewards differ, and its distance from the target, in units of reward.
        """
        pair_P2 = every_two(tokens)
        gap_P = difference(tokens.last(tokens.advantage_T), pair_P2)
        gain_N = tokens.sequence_sum(tokens.logp_T - tokens[logp_of(self.reference)])
        margin_P = difference(gain_N, pair_P2)
        residual_P = gap_P - self.beta * margin_P
        differs_P = gap_P != 0
        metrics = {
            "pair_margin": (gap_P.sign() * margin_P.detach())[differs_P],
            "pair_residual": residual_P.detach().abs(),
        }
        return PerToken(loss_T=spread(residual_P**2 / (2 * self.beta), pair_P2, tokens), metrics=metrics)
