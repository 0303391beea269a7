"""NFT: likelihood of correct rollouts, and of incorrect ones under the implicit negative policy.

Source: Chen et al. 2025, arXiv:2505.18116, section 3, and its released code. Where a share q of a group's rollouts is
correct, the policy before the step is q times a policy of correct rollouts plus 1 - q times one of incorrect ones. With
R the token's probability over that at the start of the step, imitating both is

    correct:    -log R
    incorrect:  -log max(V, floor),   V = (1 - q R) / (1 - q)

times a weight of the prompt. Values are clamped at the floor, slopes are not: below it an incorrect token keeps the
slope q R / ((1 - q) floor) in log R. So with a floor of 1 the value of the loss means little; see its gradient. For R =
1 the slopes of correct and incorrect tokens are -(1 - q) and q with ``failures``, the advantage of Dr. GRPO for rewards
of 1 and 0, and -sqrt((1 - q) / q) and sqrt(q / (1 - q)) with ``odds``, that of GRPO with the population's standard
deviation.

The advantage is not used. Groups that are all correct or all incorrect must be dropped (`filters.zero_variance`).

Differs: a single rollout has q = 1/2 in the release; here it is dropped with its group. As there, q is clamped to
[0.02, 0.98] and log R below 10, beyond which there is no gradient.
"""

from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import NonNegativeFloat, PositiveFloat

from posttrain.component import frozen
from posttrain.components.objectives import Objective
from posttrain.types import PerToken, Tokens

if TYPE_CHECKING:
    import torch

RATES = (0.02, 0.98)
MAX_LOG_RATIO = 10.0


@frozen
class NFT(Objective):
    """Likelihood of correct rollouts, and of incorrect ones under the policy that the rest implies."""

    exceptions: ClassVar[frozenset[str]] = frozenset({"zero_advantage", "reinforce"})

    prompt_weight: Literal["one", "failures", "odds"] = "failures"
    """Weight of a group: 1, 1 - q, or sqrt((1 - q) / q); harder tasks more than easy ones in the last two
    (``failures``: the release)."""
    negative: NonNegativeFloat = 1.0
    """Weight of the incorrect rollouts; 0 imitates the correct ones only (RFT)."""
    floor: PositiveFloat = 1.0
    """Smallest V that a slope is divided by; smaller ones give incorrect tokens slopes up to 1 / floor times as large
    (1: the release)."""
    ratio: Literal["token", "sequence"] = "token"
    """Whose R: each token's, or that of all trained tokens of a rollout together, whose loss they then share."""

    def __call__(self, tokens: Tokens) -> PerToken:
        """Loss of each trained token; metrics are the ratio, and the share of incorrect ones at the floor."""
        log_ratio_T = tokens.logp_T - tokens.old_logp_T
        if self.ratio == "token":
            sequence_T = tokens.sequence_T
            return self._imitation(log_ratio_T, tokens.group_solved_N[sequence_T], tokens.solved_N[sequence_T])
        result = self._imitation(tokens.sequence_sum(log_ratio_T), tokens.group_solved_N, tokens.solved_N)
        loss_N = result.loss_T / tokens.length_N.clamp(min=1)
        return PerToken(loss_T=loss_N[tokens.sequence_T], metrics=result.metrics)

    def _imitation(self, log_ratio_T: "torch.Tensor", rate_T: "torch.Tensor", solved_T: "torch.Tensor") -> PerToken:
        """The loss by log R, q and whether it is correct: for tokens, or for sequences."""
        log_ratio_T, rate_T, correct_T = log_ratio_T.clamp(max=MAX_LOG_RATIO), rate_T.clamp(*RATES), solved_T > 0
        implied_T = (1.0 - rate_T * log_ratio_T.exp()) / (1.0 - rate_T)
        held_T = implied_T.detach().clamp(min=self.floor)
        # The value of -log held, with the slope of implied: adding what clamping changes would lose small digits.
        incorrect_T = -held_T.log() - (implied_T - implied_T.detach()) / held_T
        loss_T = (-log_ratio_T).where(correct_T, self.negative * incorrect_T)
        floored_T = (implied_T.detach() < self.floor).to(loss_T.dtype)
        metrics = {"ratio": log_ratio_T.detach().exp(), "floored": floored_T[~correct_T]}
        return PerToken(loss_T=self._weight(rate_T) * loss_T, metrics=metrics)

    def _weight(self, rate_T: "torch.Tensor") -> "torch.Tensor":
        """Of the prompt, by its share of correct rollouts."""
        if self.prompt_weight == "one":
            return rate_T.new_ones(len(rate_T))
        return 1.0 - rate_T if self.prompt_weight == "failures" else ((1.0 - rate_T) / rate_T).sqrt()
