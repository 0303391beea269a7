"""Advantage-weighted matching: PPO's loss with a flow's matching error instead of the log-probability.

Source: AWM, Xue et al. 2025, arXiv:2509.25050, and its released code. A draw has the share of noise t, and m, the mean
squared error of the velocity there; its pseudo log-probability l is -m (``uniform``), -t m (``linear``), -t^2 m
(``square``), -t (sqrt(m + 1e-10) - 1e-5) (``huber``), or -(t / p) ((m + 1e-10)^p - (1e-10)^p) with p = 0.25
(``ghuber``, what the released runs use). The loss is PPO's, max(-A r, -A clip(r, 1 - c, 1 + c)), with r = exp(l - old
l) for each draw, or for each sample from the mean of its l. With one update a batch r is 1, and the gradient is -A
grad l: that of flow matching on good samples, and away from bad ones.

With `old` the old l is that of another role on the same draws: in the release a slow average of the weights, which also
samples.

Differs: the log-ratio is held within +-20, so that loss and gradient stay finite.
"""

from typing import TYPE_CHECKING, Literal

from pydantic import PositiveFloat

from posttrain.component import frozen
from posttrain.components.objectives import Objective
from posttrain.signals import NOISE, Signal, logp_of
from posttrain.types import PerToken, Tokens

if TYPE_CHECKING:
    import torch

MAX_LOG_RATIO = 20.0
TINY, POWER = 1e-10, 0.25


@frozen
class Matching(Objective):
    """Clipped surrogate on the matching errors of draws."""

    weighting: Literal["uniform", "linear", "square", "huber", "ghuber"] = "ghuber"
    """Weighting of a matching error."""
    ratio: Literal["draw", "sample"] = "draw"
    """Whether each draw has a ratio (``exp_first`` in the release), or each sample, from the mean of its draws
    (``sum_first``)."""
    clip: PositiveFloat = 1.0
    """A ratio further than this from 1 gains nothing more (1 in the release, which stops growth beyond 2 only)."""
    old: str | None = None
    """Role of the flow that gives the old l; None is the policy at the start of the step."""

    @property
    def needs(self) -> frozenset[Signal]:
        """The shares of noise, and the errors of the flow that gives the old l."""
        return frozenset({NOISE}) | ({logp_of(self.old)} if self.old is not None else set())

    @property
    def exceptions(self) -> frozenset[str]:
        """The gradient in the matching error is not that of REINFORCE where the error is weighted."""
        return frozenset() if self.weighting == "uniform" else frozenset({"reinforce"})

    def __call__(self, tokens: Tokens) -> PerToken:
        """Loss of each draw; metrics are the matching error, the ratio and the share of draws that clipping stopped."""
        noise_T = tokens[NOISE]
        old_logp_T = tokens.old_logp_T if self.old is None else tokens[logp_of(self.old)]
        gap_T = self.pseudo_logp(-tokens.logp_T, noise_T) - self.pseudo_logp(-old_logp_T, noise_T)
        if self.ratio == "sample":
            gap_T = tokens.sequence_mean(gap_T)[tokens.sequence_T]
        ratio_T = gap_T.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()
        free_T = -tokens.advantage_T * ratio_T
        clipped_T = -tokens.advantage_T * ratio_T.clamp(1.0 - self.clip, 1.0 + self.clip)
        metrics = {
            "matching_error": -tokens.logp_T.detach(),
            "ratio": ratio_T.detach(),
            "clip_fraction": (clipped_T > free_T).to(ratio_T.dtype),
        }
        return PerToken(loss_T=free_T.maximum(clipped_T), metrics=metrics)

    def pseudo_logp(self, error_T: "torch.Tensor", noise_T: "torch.Tensor") -> "torch.Tensor":
        """[T] l of matching errors."""
        weighted_T: torch.Tensor
        error_T = error_T.clamp(min=0.0)
        if self.weighting == "huber":
            weighted_T = noise_T * ((error_T + TINY).sqrt() - TINY**0.5)
        elif self.weighting == "ghuber":
            weighted_T = noise_T / POWER * ((error_T + TINY).pow(POWER) - TINY**POWER)
        else:
            weighted_T = noise_T.pow({"uniform": 0, "linear": 1, "square": 2}[self.weighting]) * error_T
        return -weighted_T
