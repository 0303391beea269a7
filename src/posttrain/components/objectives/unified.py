"""The unified policy gradient estimator: four choices, of which most post-training losses are combinations.

Source: Lv et al. 2025, arXiv:2509.04419, table of estimators. The gradient of the objective is, token by token,

    mask x (advantage / reference policy) x gradient of the likelihood p
    = mask x advantage x (p / reference policy) x gradient of log p

`SFT`, `REINFORCE`, `PPO`, `SRFT` and `LUFFY` at the end of this file are the table's rows that stay within a token. The
last two are for tokens of demonstrations: the policy that wrote them is unknown, and 1 replaces its probability.
`DFT` (Wu et al. 2025, arXiv:2508.05629) is imitation with that choice: the weight of each token is its probability.

Differs: the value of the loss is -(coefficient) log p with the coefficient held fixed, so that only its gradient means
something. Log-ratios are held within +-20. CISPO's mask (the paper's reading of it) and GSPO's sequence ratio are not
among the choices.
"""

from typing import Literal

from pydantic import PositiveFloat

from posttrain.component import frozen
from posttrain.components.objectives import Objective
from posttrain.types import PerToken, Tokens

MAX_LOG_RATIO = 20.0


@frozen
class Unified(Objective):
    """Minus log-probability, weighted by the four choices."""

    mask: Literal["none", "ppo"] = "none"
    """``ppo`` stops a token whose ratio has left the clip range in the direction of its advantage."""
    clip_low: PositiveFloat = 0.2
    """Of the mask: a ratio below 1 - clip_low is stopped where the advantage is negative."""
    clip_high: PositiveFloat = 0.2
    """Of the mask: a ratio above 1 + clip_high is stopped where the advantage is positive."""
    denominator: Literal["policy", "old", "one"] = "policy"
    """The reference policy: the policy itself, the one at the start of the step, or the number 1."""
    advantage: Literal["estimated", "one"] = "estimated"
    """The advantage of the batch, or 1 for everything, which is imitation."""
    likelihood: Literal["plain", "shaped"] = "plain"
    """``shaped`` takes the likelihood f(p) = p / (p + shaping) in place of p (LUFFY, arXiv:2504.14945): tokens that
    the policy finds unlikely weigh more."""
    shaping: PositiveFloat = 0.1
    """Of the shaped likelihood (0.1 in LUFFY)."""

    @property
    def exceptions(self) -> frozenset[str]:
        """Without the advantage it is imitation; a factor of p or f'(p) is not REINFORCE."""
        if self.advantage == "one":
            return frozenset({"zero_advantage", "reinforce", "bandit"})
        return frozenset({"reinforce"} if self.denominator == "one" or self.likelihood == "shaped" else ())

    def __call__(self, tokens: Tokens) -> PerToken:
        """Loss of each trained token; metrics are the coefficient of its gradient and the share that the mask keeps."""
        logp_T = tokens.logp_T.detach()
        ratio_T = (logp_T - tokens.old_logp_T).clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()
        advantage_T = tokens.advantage_T if self.advantage == "estimated" else tokens.advantage_T.new_ones(len(logp_T))
        by_denominator = {"policy": logp_T.new_ones(len(logp_T)), "old": ratio_T, "one": logp_T.exp()}
        coefficient_T = advantage_T * by_denominator[self.denominator]
        if self.likelihood == "shaped":
            coefficient_T = coefficient_T * self.shaping / (logp_T.exp() + self.shaping) ** 2
        metrics = {}
        if self.mask == "ppo":
            above_T = (advantage_T > 0) & (ratio_T > 1.0 + self.clip_high)
            below_T = (advantage_T < 0) & (ratio_T < 1.0 - self.clip_low)
            metrics["kept"] = (~(above_T | below_T)).to(logp_T.dtype)
            coefficient_T = coefficient_T * metrics["kept"]
        return PerToken(loss_T=-coefficient_T * tokens.logp_T, metrics=metrics | {"coefficient": coefficient_T})


SFT = Unified(advantage="one")
REINFORCE = Unified()
PPO = Unified(mask="ppo", denominator="old")
SRFT = Unified(denominator="one")
LUFFY = Unified(denominator="one", likelihood="shaped")
DFT = Unified(denominator="one", advantage="one")
