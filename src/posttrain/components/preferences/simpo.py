"""SimPO: the reward is the mean log-probability of a completion's tokens, with a target margin and no reference.

Source: Meng et al. 2024, arXiv:2405.14734, equation 6, and its released code, from which the label smoothing is. With m
the mean log-probability of a completion's tokens and e the label smoothing:

    margin = beta m(chosen) - beta m(rejected) - gamma
    loss = -(1 - e) log sigmoid(margin) - e log sigmoid(-margin)

The code gives gamma / beta as its setting; gamma is the paper's. With gamma 0 and completions of one token it is DPO
without a reference.

Differs: nothing known. The code's other options, a hinge and an added SFT loss, are not here: `rpo` adds the latter to
any loss.
"""

from pydantic import NonNegativeFloat, PositiveFloat

from posttrain.component import frozen
from posttrain.components.preferences import Pairs, PerPair, PreferenceLoss
from posttrain.components.preferences._logistic import Rate, logistic


@frozen
class SimPO(PreferenceLoss):
    """Simple preference optimization."""

    beta: PositiveFloat = 2.0
    """Reward per nat a token (2.0 to 2.5 in the paper; 10 for its largest model)."""
    gamma: NonNegativeFloat = 1.0
    """Margin by which the chosen completion's reward is to be higher (0.3 to 1.6 in the paper)."""
    label_smoothing: Rate = 0.0
    """Share of pairs that are assumed to have swapped labels."""

    def __call__(self, pairs: Pairs) -> PerPair:
        """Loss of each pair."""
        mean_P2 = pairs.logp_P2 / pairs.length_P2.clamp(min=1)
        return logistic(pairs, self.beta * mean_P2, smoothing=self.label_smoothing, target=self.gamma)
