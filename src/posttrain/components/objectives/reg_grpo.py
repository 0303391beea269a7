"""Reg-GRPO: regression of a group's log-ratios, in units of their standard deviation, on its advantages.

Source: Park et al. 2025 (DeepVideo-R1), arXiv:2506.07464, section 3.2. With rho = log pi(y) - log old(y), summed over
the completion, the loss of a group is the mean of

    (A - (rho - mean rho) / std rho)^2.

Where the reward is rho times a constant plus another one, as in the optimum of a KL-regularized objective, both
cancel in the normalized advantage. There is no ratio, no minimum and no clipping, so no completion loses its gradient.

With the exact std the loss is 2 - 2 correlation(A, rho), times (n - 1) / n. It does not depend on the scale of rho, so
that only a KL penalty, the learning rate and the number of updates bound a step. On policy every rho is 0, and `floor`
replaces the std: the gradient is that of -2 A rho / floor.

A group of equal advantages has no regression target and would change rho without bound; its loss is 0.

Differs: the paper defines neither the std when all rho are equal, nor whether mean and std are differentiated. The std
is the unbiased one, as in `group_mean`, and never below `floor`.
"""

from typing import TYPE_CHECKING, ClassVar, Literal

from pydantic import PositiveFloat

from posttrain.component import frozen
from posttrain.components.objectives import Objective
from posttrain.types import PerToken, Tokens

if TYPE_CHECKING:
    import torch


@frozen
class RegGRPO(Objective):
    """Squared distance between advantages and normalized log-ratios."""

    whole_groups: ClassVar[bool] = True
    exceptions: ClassVar[frozenset[str]] = frozenset({"reinforce"})
    """Only differences of advantages count, and the floor sets their scale."""

    floor: PositiveFloat = 0.1
    """Lower bound of the std of log-ratios, in nats (ours). The first gradient is 1 / floor times as large as an
    advantage, so that 1e-4 needs a clipped norm."""
    statistics: Literal["differentiated", "held"] = "differentiated"
    """Whether the gradient goes through mean and std of the log-ratios too."""

    def __call__(self, tokens: Tokens) -> PerToken:
        """[T] the loss of each token's group; metrics are the squared errors, the stds of log-ratios, and the
        share of groups in which the floor replaced the std, of groups that have a loss.
        """
        advantage_N, group_N = tokens.last(tokens.advantage_T), tokens.group_N
        rho_N = tokens.sequence_sum(tokens.logp_T - tokens.old_logp_T)
        size_G = group_N.bincount()
        mean_G = _sum(rho_N, group_N, size_G) / size_G.clamp(min=1)
        variance_G = _sum((rho_N - mean_G[group_N]) ** 2, group_N, size_G) / (size_G - 1).clamp(min=1)
        std_G = variance_G.clamp(min=self.floor**2).sqrt()
        if self.statistics == "held":
            mean_G, std_G = mean_G.detach(), std_G.detach()
        error_N = (advantage_N - (rho_N - mean_G[group_N]) / std_G[group_N]) ** 2
        varied_G = _varied(advantage_N, group_N, size_G)
        loss_G = (_sum(error_N, group_N, size_G) / size_G.clamp(min=1)).where(varied_G, error_N.new_zeros(()))
        metrics = {
            "squared_error": error_N.detach()[varied_G[group_N]],
            "log_ratio_std": variance_G.detach().sqrt()[varied_G],
            "floored": (variance_G <= self.floor**2).to(error_N.dtype)[varied_G],
        }
        return PerToken(loss_T=loss_G[group_N][tokens.sequence_T], metrics=metrics)


def _sum(x_N: "torch.Tensor", group_N: "torch.Tensor", size_G: "torch.Tensor") -> "torch.Tensor":
    """[G] sum over each group."""
    return x_N.new_zeros(len(size_G)).index_add(0, group_N, x_N)


def _varied(advantage_N: "torch.Tensor", group_N: "torch.Tensor", size_G: "torch.Tensor") -> "torch.Tensor":
    """[G] whether the advantages of a group are not all the same; False where there is no group."""
    zero_G = advantage_N.new_zeros(len(size_G))
    most_G = zero_G.scatter_reduce(0, group_N, advantage_N, "amax", include_self=False)
    least_G = zero_G.scatter_reduce(0, group_N, advantage_N, "amin", include_self=False)
    return most_G > least_G
