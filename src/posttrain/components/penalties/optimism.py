"""Optimism: lowers the likelihood of the policy's own samples, so that it explores.

Source: the second term of SELM, Zhang et al. 2024, arXiv:2405.19332, and of its released code
(github.com/shenao-zhang/SELM). With s the log-probability of a response that a model wrote (summed over its tokens),
each pair's loss has

    coefficient [s under the policy - s under the reference]

more, where the coefficient is alpha times beta of the pair's loss. The gradient is a constant: it lowers the response
as strongly when it is likely as when it no longer is, so that only a small coefficient limits it. The
reference changes the value only, and makes the metric an estimate of the divergence from it.

A negative coefficient is the opposite, imitation of the samples: the term of RPO, Liu et al. 2024,
arXiv:2405.16436, with the policy's own responses as the baseline.

Each token of a group has the mean over the group's sampled responses, as in
`posttrain.components.preferences.compare`, so that a reducer that counts sequences alike takes the mean over groups of
one size. Tokens that were not sampled, such as those of recorded completions, are left out of the sum.

Differs: nothing known.
"""

from typing import ClassVar

from posttrain.component import frozen
from posttrain.components.penalties import Penalty
from posttrain.signals import Signal, logp_of
from posttrain.types import PerToken, Tokens


@frozen
class Optimism(Penalty):
    """A coefficient times the log-ratio to the reference of whole responses that were sampled."""

    whole_groups: ClassVar[bool] = True

    coefficient: float = 1e-5
    """alpha times beta, in units of loss per nat (1e-3 times 0.01 in the paper's Zephyr runs)."""
    role: str = "reference"
    """The reference: a role, or ``old`` for the policy as the step began."""

    @property
    def needs(self) -> frozenset[Signal]:
        """The reference's log-probabilities."""
        return frozenset({logp_of(self.role)})

    def in_loss(self, tokens: Tokens) -> PerToken | None:
        """[T] the term of each token's group; the metric is the log-ratio of each sampled response."""
        sampled_T = (~tokens.demonstrated_T).to(tokens.logp_T.dtype)
        ratio_N = tokens.sequence_sum((tokens.logp_T - tokens[logp_of(self.role)]) * sampled_T)
        count_N = (tokens.sequence_sum(sampled_T) > 0).to(ratio_N.dtype)
        empty_G = ratio_N.new_zeros(int(tokens.group_N.max()) + 1)
        count_G = empty_G.index_add(0, tokens.group_N, count_N).clamp(min=1)
        mean_G = empty_G.index_add(0, tokens.group_N, ratio_N) / count_G
        return PerToken(
            loss_T=self.coefficient * mean_G[tokens.group_N][tokens.sequence_T],
            metrics={"log_ratio": ratio_N[count_N > 0].detach()},
        )
