r"""Think-RM: the mean margin of a rollout over the others of its group, in units of the margins' own spread.

Source: Think-RM, arXiv:2505.16265, and its release (PairwiseRLHF, core_algos.py). With d_ij = -d_ji the margin by which
a judge prefers rollout i to rollout j, G rollouts in a group and both sums over all ordered pairs:

    A_i = (1/G) sum_j d_ij / sqrt(sum_ij d_ij^2 / (2 G (G-1)) + epsilon)

Where d_ij is a difference of rewards, this is (r_i - mean) / std with the unbiased variance: GRPO. The advantages of a
group sum to 0. Verdicts in a circle cancel in the numerator and not in the denominator, so an inconsistent group has
small advantages; the metric ``inconsistency`` is the share of the squared margins that no scores explain. Two rollouts
have .707 and -.707 whatever the strength.

Margins are the parts ``against_N`` of the score, N the number of the other rollout, as the reward `duels` gives them.
What else is in the return of a rollout, such as a penalty in the reward, is added to its margins. Rollouts without such
parts are compared by their returns.

Differs: a group of one has advantage 0, where the release divides 0 by 0.
"""

from typing import Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import PositiveFloat

from posttrain.component import frozen
from posttrain.components.advantages import Advantage, State
from posttrain.components.advantages._arithmetic import per_token
from posttrain.types import Batch, Credit, Trajectory

AGAINST = "against_"


@frozen
class Pairwise(Advantage):
    """Mean margin over the group, normalized by the root mean square of the margins."""

    epsilon: PositiveFloat = 1e-6
    """Added to the mean square, in squared units of margin."""

    @property
    def is_relative(self) -> bool:
        """True."""
        return True

    @property
    def reads(self) -> Literal["sum", "returns", "tokens"]:
        """The sum over the rollout."""
        return "sum"

    def __call__(self, state: State, batch: Batch) -> tuple[State, Credit]:
        """Compare every rollout with the others of its group."""
        advantage_N = np.zeros(len(batch.trajectories))
        square = rest = 0.0
        for group in range(len(batch.groups)):
            index_G = np.flatnonzero(batch.group_N == group)
            margin_GG = margins([batch.trajectories[i] for i in index_G], batch.return_N[index_G])
            size = len(index_G)
            if size > 1:
                mean_square = (margin_GG**2).sum() / (2 * size * (size - 1))
                advantage_N[index_G] = margin_GG.mean(1) / np.sqrt(mean_square + self.epsilon)
                explained_GG = np.subtract.outer(margin_GG.mean(1), margin_GG.mean(1))
                square += float((margin_GG**2).sum())
                rest += float(((margin_GG - explained_GG) ** 2).sum())
        metrics = {"inconsistency": rest / square} if square > 0 else {}
        return state, Credit(advantages=per_token(advantage_N, batch), metrics=metrics)


def margins(rollouts: list[Trajectory], return_G: NDArray[np.float64]) -> NDArray[np.float64]:
    """[G, G] the margin of each rollout over each other one, antisymmetric."""
    own_G, margin_GG = return_G.copy(), np.zeros((len(rollouts), len(rollouts)))
    place = {rollout.sample: i for i, rollout in enumerate(rollouts)}
    for i, rollout in enumerate(rollouts):
        parts = rollout.score.parts if rollout.score is not None else {}
        given = {name.removeprefix(AGAINST): part.value for name, part in parts.items() if name.startswith(AGAINST)}
        if given and rollout.score is not None:
            own_G[i] -= rollout.score.value
        for other, value in given.items():
            if other.isdecimal() and int(other) in place:
                margin_GG[i, place[int(other)]] = value
    margin_GG = (margin_GG - margin_GG.T) / 2
    return margin_GG + np.subtract.outer(own_G, own_G)
