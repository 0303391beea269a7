"""DPO: a classifier of pairs whose logit is the policy's own reward margin, beta log(policy / reference).

Source: Rafailov et al. 2023, arXiv:2305.18290, equation 7. Label smoothing: Mitchell 2023, "A note on DPO with noisy
preferences" (ericmitchell.ai/cdpo.pdf), as in the paper's released code. With s the log-probability of a completion
(summed over its tokens), h = [s(chosen) - s(rejected)] - the same under the reference, and e the label smoothing:

    loss = -(1 - e) log sigmoid(beta h) - e log sigmoid(-beta h)

Where the policy is the reference, the loss is log 2, and no pair counts as correct, since the margin is 0.

`by_length` is length-normalised DPO (Tulu 3, arXiv:2411.15124; open-instruct at e6c3044a, dpo_utils.py): each s is
divided by the number of tokens of its completion, so that longer completions weigh no more. The means are small, and
beta is larger (5 there). For completions of one length it is DPO with beta over that length.

Differs: nothing known.
"""

from pydantic import PositiveFloat

from posttrain.component import frozen
from posttrain.components.preferences import Pairs, PerPair, PreferenceLoss
from posttrain.components.preferences._logistic import Rate, logistic
from posttrain.signals import Signal, logp_of


@frozen
class DPO(PreferenceLoss):
    """Direct preference optimization."""

    beta: PositiveFloat = 0.1
    """Reward per nat; smaller regularizes less towards the reference (0.1 to 0.5 in the released code)."""
    label_smoothing: Rate = 0.0
    """Share of pairs that are assumed to have swapped labels; 0 is DPO, more is conservative DPO."""
    by_length: bool = False
    """Whether log-probabilities are means over the tokens of a completion, not sums; it needs a larger beta."""
    reference: str | None = "reference"
    """The reference: a role, or ``old`` for the policy at the start of the step; None has no reference, as if every
    completion were equally likely under it."""

    @property
    def needs(self) -> frozenset[Signal]:
        """The reference's log-probabilities."""
        return frozenset() if self.reference is None else frozenset({logp_of(self.reference)})

    def __call__(self, pairs: Pairs) -> PerPair:
        """Loss of each pair."""
        gain_P2 = pairs.logp_P2
        if self.reference is not None:
            gain_P2 = gain_P2 - pairs.reference_logp_P2[logp_of(self.reference)]
        if self.by_length:
            gain_P2 = gain_P2 / pairs.length_P2.clamp(min=1)
        return logistic(pairs, self.beta * gain_P2, smoothing=self.label_smoothing)
