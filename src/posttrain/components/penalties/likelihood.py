"""Imitation of good rollouts: the negative log-likelihood of those with the full reward, added to the loss.

Source: the likelihood term of Klear-Reasoner's released runs (Su et al. 2025, arXiv:2508.07629), of weight 0.1, for
rollouts whose reward is exactly 1.

Differs: the release divides by the tokens of good rollouts in a micro-batch. Here the term of other rollouts is 0 and
they still count where the loss is averaged, so that the result does not depend on the micro-batches. Where half of the
tokens are those of good rollouts, a weight of 0.1 here is 0.05 there.
"""

from pydantic import NonNegativeFloat

from posttrain.component import frozen
from posttrain.components.penalties import Penalty
from posttrain.types import PerToken, Tokens


@frozen
class Likelihood(Penalty):
    """Minus log-probability of the tokens of good rollouts."""

    coefficient: NonNegativeFloat = 0.1
    """Weight, in units of reward per nat (0.1: the released runs)."""
    at_least: float = 1.0
    """Lowest score of a rollout that is imitated, in units of reward (1: the full reward)."""

    def in_loss(self, tokens: Tokens) -> PerToken | None:
        """[T] coefficient times minus log-probability; metrics are the share of good rollouts, and their nats."""
        imitated_N = tokens.reward_N >= self.at_least
        imitated_T = imitated_N[tokens.sequence_T]
        loss_T = -self.coefficient * tokens.logp_T
        return PerToken(
            loss_T=loss_T.masked_fill(~imitated_T, 0.0),
            metrics={
                "share": imitated_N.to(loss_T.dtype),
                "nats": -tokens.logp_T.detach()[imitated_T],
            },
        )
