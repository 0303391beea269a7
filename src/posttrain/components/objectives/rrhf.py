"""RRHF: mean log-probabilities in the order of a ranking, and imitation of the best.

Source: Yuan et al. 2023, arXiv:2304.05302, as CycleAlign (arXiv:2310.16271) takes it. With p the mean log-probability
of the tokens of a rollout, and advantages that give its rank within its group,

    loss of a group = sum over pairs, i ranked above j, of max(0, p_j - p_i)  -  log pi(best)

the last being the sum over the tokens of the highest, the first of equals. Equal advantages are no pair, and a group
without a pair has no loss. The law of the bandit does not hold in its time: the hinge ends where the order is right,
and imitation of the best alone goes on. The first part is 0 where p has the order of the ranking; the second never is.

Differs: nothing known. Each token has the loss of its group, so that a reducer that weighs sequences equally takes the
mean over groups of one size.
"""

from typing import ClassVar

from pydantic import NonNegativeFloat

from posttrain.component import frozen
from posttrain.components.objectives import Objective
from posttrain.components.preferences import pairs_in
from posttrain.types import PerToken, Tokens


@frozen
class RRHF(Objective):
    """Hinge of mean log-probabilities, and the likelihood of the best rollout."""

    whole_groups: ClassVar[bool] = True
    exceptions: ClassVar[frozenset[str]] = frozenset({"reinforce", "bandit"})

    imitation: NonNegativeFloat = 1.0
    """Weight of the likelihood of the best."""

    def __call__(self, tokens: Tokens) -> PerToken:
        """[T] the loss of the group of each token."""
        import torch

        pair_P2, group_N = pairs_in(tokens), tokens.group_N
        total_N = tokens.sequence_sum(tokens.logp_T)
        mean_N = total_N / tokens.length_N.clamp(min=1)
        hinge_P = (mean_N[pair_P2[:, 1]] - mean_N[pair_P2[:, 0]]).clamp(min=0)
        loss_G = mean_N.new_zeros(int(group_N.max()) + 1).index_add(0, group_N[pair_P2[:, 0]], hinge_P)
        advantage_N = tokens.last(tokens.advantage_T)
        best = [
            int(torch.where(group_N == g, advantage_N, -torch.inf).argmax())
            for g in sorted(set(group_N[pair_P2[:, 0]].tolist()))
        ]
        best_B = torch.tensor(best, dtype=torch.int64, device=group_N.device)
        loss_G = loss_G.index_add(0, group_N[best_B], -self.imitation * total_N[best_B])
        metrics = {"misordered_pairs": (hinge_P > 0).to(hinge_P.dtype).detach(), "best_logp": mean_N[best_B].detach()}
        return PerToken(loss_T=loss_G[group_N][tokens.sequence_T], metrics=metrics)
