"""Inverse soft Q-learning: imitation in which the logits are action values, and the rewards that they imply stay small.

Source: Wulfmeier et al. 2024, arXiv:2409.01369; IQ-Learn, Garg et al. 2021, arXiv:2106.12142, with the chi-square
regulariser. With logits Q and V = log-sum-exp Q, the soft value of a state, a demonstrated token has the reward

    r_t = Q(s_t, a_t) - gamma V(s_t+1) = log p(a_t | s_t) + V(s_t) - gamma V(s_t+1),    V = 0 after the last token

and its loss is -log p(a_t | s_t) + c r_t^2, with c = 1 / (4 alpha). Both V have a gradient. The likelihood alone does
not depend on a constant added to all logits of a position; c fixes it, and couples neighbouring positions.
c = 0 is the likelihood, gamma = 0 penalizes the chosen token's logit.

Differs: the displayed equations were not accessible; this is a derivation, as in a public re-implementation (gamma 1,
c 0.1), whose means also count prompts and padding. What follows a sequence's last trained token counts as its end, also
where a completion was cut at the limit of tokens, or where another loss has the tokens that follow. Only demonstrations
are learned from; the paper's online variant mixes in the policy's own samples.
"""

from typing import TYPE_CHECKING, Annotated, ClassVar

from pydantic import Field, NonNegativeFloat

from posttrain.component import frozen
from posttrain.components.objectives import Objective
from posttrain.signals import LOGIT, Signal
from posttrain.types import PerToken, Tokens

if TYPE_CHECKING:
    import torch


@frozen
class IQLearn(Objective):
    """Minus log-probability, plus the squared reward that the logits imply."""

    needs: ClassVar[frozenset[Signal]] = frozenset({LOGIT})
    exceptions: ClassVar[frozenset[str]] = frozenset({"zero_advantage", "reinforce", "bandit"})

    coefficient: NonNegativeFloat = 0.1
    """c, the weight of the squared reward, at least 0 (0.1: the re-implementation). A model that was trained by
    likelihood alone has logits with any offset, so that the rewards of last tokens are large at first: start small."""
    gamma: Annotated[float, Field(ge=0.0, le=1.0)] = 1.0
    """Discount of the next state's value, in [0, 1]."""

    def __call__(self, tokens: Tokens) -> PerToken:
        """Loss of each trained token; metrics are the reward, its square, and the value of the state."""
        reward_T = self.reward(tokens)
        metrics = {
            "implied_reward": reward_T.detach(),
            "implied_reward/squared": reward_T.detach() ** 2,
            "soft_value": (tokens[LOGIT] - tokens.logp_T).detach(),
        }
        return PerToken(loss_T=-tokens.logp_T + self.coefficient * reward_T**2, metrics=metrics)

    def reward(self, tokens: Tokens) -> "torch.Tensor":
        """[T] the reward r of each token, in nats; the sum over a sequence scores it."""
        value_T = tokens[LOGIT] - tokens.logp_T
        continues_T = tokens.sequence_T[1:] == tokens.sequence_T[:-1]
        next_T = value_T.new_zeros(len(value_T))
        next_T[:-1] = value_T[1:] * continues_T
        return tokens[LOGIT] - self.gamma * next_T
