"""P3O: policy gradient of pairs, where only the difference of two completions' rewards counts, with clipped ratios.

Source: Wu et al. 2023, arXiv:2310.00212. For two completions of a prompt, log pi summed over each and w = pi / old:

    gradient = (r1 - r2) / 2 x w1 w2 x gradient of (log pi(y1) - log pi(y2)).

A constant added to all rewards of a prompt cancels. Two ways of clipping:

    separate (V1)   1/2 sum over i of min(c w_i, c clip(w_i, 1 - e, 1 + e)),  c = (r_i - r_j) w_j
    joint (V2)      1/2 min(c u, c clip(u, -e, e)),                           c = (r1 - r2) w1 w2

with j the other one, u = log(pi(y1) / pi(y2)) - log(old(y1) / old(y2)), and c not differentiated. Equal rewards give no
gradient, and on policy it is that of RLOO.

The reward is the advantage of a completion's last token; `group_mean` with ``scale="none"`` keeps differences
unchanged.

Differs: the gradient, the ratios as weights, the steps of the algorithm, and that V1 clips two completions separately
and V2 jointly were checked, in summaries of the paper; the two expressions with a minimum were not, and are put
together from these. Groups of more than two count the mean over all pairs. `max_weight` is not in the paper. Log-ratios
in weights are held within +-20, so that everything stays finite.
"""

from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import PositiveFloat

from posttrain.component import frozen
from posttrain.components.objectives import Objective
from posttrain.components.objectives._pairs import difference, every_two
from posttrain.components.preferences import spread
from posttrain.types import PerToken, Tokens

if TYPE_CHECKING:
    import torch

MAX_LOG_RATIO = 20.0


@frozen
class P3O(Objective):
    """Clipped surrogate of every two completions of a group."""

    whole_groups: ClassVar[bool] = True
    exceptions: ClassVar[frozenset[str]] = frozenset({"reinforce"})
    """Only differences of advantages count."""

    clip: Literal["separate", "joint"] = "joint"
    """The ratio of each completion (V1), or the change of the pair's log-ratio (V2, the more stable one)."""
    epsilon: PositiveFloat = 0.2
    """Clip range: of a ratio's distance from 1, or for ``joint`` in nats (PPO's 0.2; the
    paper's is not known)."""
    max_weight: PositiveFloat = 10.0
    """Largest importance weight in c: products of ratios of whole completions have heavy tails (ours)."""

    def __call__(self, tokens: Tokens) -> PerToken:
        """[T] the mean loss of the pairs in each token's group; metrics are each completion's ratio, each pair's weight
        and the share that clipping stopped.
        """
        pair_P2 = every_two(tokens)
        gap_P = difference(tokens.last(tokens.advantage_T), pair_P2)
        log_ratio_N = tokens.sequence_sum(tokens.logp_T - tokens.old_logp_T)
        surrogate = self._separate if self.clip == "separate" else self._joint
        free_P2, clipped_P2, weight_P2 = surrogate(gap_P, log_ratio_N, pair_P2)
        metrics = {
            "ratio": _ratio(log_ratio_N.detach()),
            "weight": weight_P2.flatten(),
            "clip_fraction": (clipped_P2 < free_P2).to(gap_P.dtype).flatten(),
        }
        return PerToken(loss_T=spread(-free_P2.minimum(clipped_P2).sum(1) / 2, pair_P2, tokens), metrics=metrics)

    def _separate(
        self, gap_P: "torch.Tensor", log_ratio_N: "torch.Tensor", pair_P2: "torch.Tensor"
    ) -> "tuple[torch.Tensor, torch.Tensor, torch.Tensor]":
        """[P, 2] free and clipped objective of each of the two, and the weight in its c: the ratio of the other."""
        ratio_P2 = _ratio(log_ratio_N)[pair_P2]
        weight_P2 = ratio_P2.detach().flip(1).clamp(max=self.max_weight)
        c_P2 = gap_P[:, None] * gap_P.new_tensor([1.0, -1.0]) * weight_P2
        return c_P2 * ratio_P2, c_P2 * ratio_P2.clamp(1.0 - self.epsilon, 1.0 + self.epsilon), weight_P2

    def _joint(
        self, gap_P: "torch.Tensor", log_ratio_N: "torch.Tensor", pair_P2: "torch.Tensor"
    ) -> "tuple[torch.Tensor, torch.Tensor, torch.Tensor]":
        """[P, 1] free and clipped objective of the pair, and the weight in its c: the product of both ratios."""
        weight_P1 = _ratio(log_ratio_N.detach())[pair_P2].prod(1, keepdim=True).clamp(max=self.max_weight)
        u_P1 = difference(log_ratio_N, pair_P2)[:, None]
        c_P1 = gap_P[:, None] * weight_P1
        return c_P1 * u_P1, c_P1 * u_P1.clamp(-self.epsilon, self.epsilon), weight_P1


def _ratio(log_ratio: "torch.Tensor") -> "torch.Tensor":
    return log_ratio.clamp(-MAX_LOG_RATIO, MAX_LOG_RATIO).exp()
