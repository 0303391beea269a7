"""Mirror descent: policy gradient with a squared log-ratio that regularizes towards the sampling policy.

Source: Kimi k1.5, arXiv:2501.12599, section 2.3.2. The best policy of an iteration, for rewards less tau times the
divergence from the policy pi_i at its start, has r - tau log Z = tau log(pi(y) / pi_i(y)) for every response y.
The squared difference of the two sides is minimized. With the mean reward of a group for tau log Z, so that r minus it
is the advantage A, and divided by 2 tau, that is, up to a constant,

    -A s + tau / 2 s^2,    s = log(pi(y) / pi_i(y)), the sum over the tokens of the response

with the gradient -(A - tau s) of log pi(y): that of REINFORCE, and 0 once s is A / tau. There is no ratio and no
clipping, and responses may be used in many updates. In a group of equal rewards only the square is left, which pulls
back to pi_i.

The square is that of the whole response. A sum of the tokens' squares, as in the framework ROLL, is another loss:
it also penalizes log-ratios that cancel each other in the response.

Differs: nothing known. The paper's other estimate of tau log Z, by the logarithm of mean exponentials, would be another
advantage.
"""

from pydantic import NonNegativeFloat

from posttrain.component import frozen
from posttrain.components.objectives import Objective
from posttrain.types import PerToken, Tokens


@frozen
class MirrorDescent(Objective):
    """Minus advantage times the response's log-ratio, plus its square."""

    tau: NonNegativeFloat = 0.1
    """Weight of the square, in units of reward per nat; 0 does not regularize. The paper does not give it; 0.1 is
    that of the framework ROLL."""

    @property
    def exceptions(self) -> frozenset[str]:
        """With an advantage of 0 the policy is still regularized towards that at the start of the step."""
        return frozenset({"zero_advantage"}) if self.tau else frozenset()

    def __call__(self, tokens: Tokens) -> PerToken:
        """Loss of each trained token, which sums to that of its response; the metric is the response's log-ratio."""
        log_ratio_T = tokens.logp_T - tokens.old_logp_T
        log_ratio_N = tokens.sequence_sum(log_ratio_T)
        # Each token has its share of the square, so that shares sum to it and the gradient of the sum is exact.
        pull_T = 0.5 * self.tau * log_ratio_N[tokens.sequence_T]
        return PerToken(
            loss_T=(pull_T - tokens.advantage_T) * log_ratio_T,
            metrics={"log_ratio": log_ratio_N.detach()},
        )
