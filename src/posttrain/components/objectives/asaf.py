"""Imitation by a discriminator that is made of two policies: the demonstrations' tokens against the policy's own.

Source: adversarial soft advantage fitting, Barde, Roy et al. 2020, arXiv:2006.13258, of which the form is from general
knowledge. A discriminator D = p / (p + p_old), of the probabilities of a rollout under the policy that is trained and
under that which sampled, is to tell demonstrations from own rollouts by cross-entropy:

    logit = log p - log p_old      loss = log(1 + exp(-logit)) of a demonstration, log(1 + exp(logit)) of a rollout

At its best p is the demonstrator's policy, so that nothing else is learned: the next step's p_old is this step's p.
There is no reward and no advantage. At the start of a step D is 1/2 everywhere.

`per: token` compares single steps. Windows between the two, which the paper has, are not there.
"""

from typing import ClassVar, Literal

from posttrain.component import frozen
from posttrain.components.objectives import Objective
from posttrain.types import PerToken, Tokens


@frozen
class ASAF(Objective):
    """Cross-entropy of the discriminator that two policies make."""

    exceptions: ClassVar[frozenset[str]] = frozenset({"zero_advantage", "reinforce", "bandit"})

    per: Literal["sequence", "token"] = "sequence"
    """What is compared: whole completions, or each token with what came before it."""

    def __call__(self, tokens: Tokens) -> PerToken:
        """Loss of each trained token, which sums to that of its completion; metrics are D's mean and accuracy."""
        from torch.nn.functional import softplus

        logit_T = tokens.logp_T - tokens.old_logp_T
        sign_T = 1.0 - 2.0 * tokens.demonstrated_T.to(logit_T.dtype)
        if self.per == "sequence":
            logit_T = tokens.sequence_sum(logit_T)[tokens.sequence_T]
        loss_T = softplus(sign_T * logit_T)
        if self.per == "sequence":
            loss_T = loss_T / tokens.length_N.clamp(min=1)[tokens.sequence_T]
        right_T = (sign_T * logit_T.detach() < 0.0).to(logit_T.dtype)
        return PerToken(loss_T=loss_T, metrics={"discriminator": logit_T.detach().sigmoid(), "accuracy": right_T})
