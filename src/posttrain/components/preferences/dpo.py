"""DPO: a classifier of pairs whose logit is the policy's own reward margin, beta log(policy / reference).

Source: Rafailov et al. 2023, arXiv:2305.18290, equation 7. Label smoothing: Mitchell 2023, "A note on DPO with noisy
preferences" (ericmitchell.ai/cdpo.pdf), as in the paper's released code. With s the log-probability of a completion
(summed over its tokens), h = [s(chosen) - s(rejected)] - the same under the reference, and e the label smoothing:

    loss = -(1 - e) log sigmoid(beta h) - e log sigmoid(-beta h)

Where the policy is the reference, the loss is log 2, and no pair counts as correct, since the margin is 0.

`by_length` is length-normalised DPO (Tulu 3, arXiv:2411.15124; open-instruct at e6c3044a, dpo_utils.py): each s is
divided by the number of tokens of its completion, so that longer completions weigh no more. The means are small, and
beta is larger (5 there). For completions of one length it is DPO with beta over that length.

Two uses of a pair's `margin` m, a constant in units of reward:

`target` (Step-APO of CPL, arXiv:2409.08642; CPL-Reasoning at 61b99b4, dpo/trainer.py) subtracts target m outside beta,
so that pairs whose values are further apart need a larger margin of the policy's own:

    loss = -log sigmoid(beta h - target m)          log(1 + exp(target m)) where the policy is the reference

`growth` (MM-DPO of MM-RLHF, arXiv:2502.10391, section 4) gives each pair a beta of its own inside the sigmoid, which is
not a weight of its loss. Where the margin is negative, because the reward disagrees with the label, it stays beta:

    beta_i = beta (1 + growth (1 - exp(-rate max(m, 0)))),    between beta and (1 + growth) beta

Pairs of one margin are DPO with that beta.

Differs: nothing known. The release of MM-RLHF replaces beta_i by a value from the policy's own margins over a batch,
unless its default is changed; the paper's formula is here.
"""

from pydantic import NonNegativeFloat, PositiveFloat

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
    target: NonNegativeFloat = 0.0
    """Target of the policy's margin per unit of the pair's margin, outside beta (1 in CPL, with beta 0.3); 0 is DPO."""
    growth: NonNegativeFloat = 0.0
    """Largest relative increase of beta by the pair's margin (0.5 in MM-RLHF, 0.1 in its script); 0 is DPO."""
    rate: PositiveFloat = 0.5
    """How fast beta increases per unit of margin, MM-RLHF's k."""

    @property
    def needs(self) -> frozenset[Signal]:
        """The reference's log-probabilities."""
        return frozenset() if self.reference is None else frozenset({logp_of(self.reference)})

    @property
    def reads(self) -> frozenset[str]:
        """The margin, where it is used."""
        return frozenset({"margin"}) if self.target or self.growth else frozenset()

    def __call__(self, pairs: Pairs) -> PerPair:
        """Loss of each pair; `pair_beta` is the beta of each, where it differs."""
        gain_P2 = pairs.logp_P2
        if self.reference is not None:
            gain_P2 = gain_P2 - pairs.reference_logp_P2[logp_of(self.reference)]
        if self.by_length:
            gain_P2 = gain_P2 / pairs.length_P2.clamp(min=1)
        if not self.reads:
            return logistic(pairs, self.beta * gain_P2, smoothing=self.label_smoothing)
        margin_P = pairs.fields["margin"].detach().to(gain_P2.dtype)
        beta_P = self.beta * (1 + self.growth * (1 - (-self.rate * margin_P.clamp(min=0)).exp()))
        target_P = self.target * margin_P
        result = logistic(pairs, beta_P[:, None] * gain_P2, smoothing=self.label_smoothing, target=target_P)
        negative_P = (margin_P < 0).to(margin_P.dtype)
        more = {"pair_beta": beta_P, "given_margin": margin_P, "negative_margin": negative_P}
        return PerPair(loss_P=result.loss_P, metrics={**result.metrics, **more})
