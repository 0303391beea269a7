"""CGPO: three ways to learn from rollouts that keep or break constraints.

Source: Xu et al. 2024, arXiv:2409.20370, as read in a port to TRL (huggingface/trl at 070b2c0). The reward is 0 where a
constraint is broken and above 0 where all are kept (`rewards/constraints`). k is log pi - log reference of the whole
rollout, when it was sampled.

    crpg     w = R max(0, 1 - k / K), A = w - mean of w over the whole batch; with `policy_gradient`
    crraft   of those that keep the constraints with k <= K, the one with the highest R in its group gets A = R, all
             others 0; with `policy_gradient` it is imitated
    codpo    1 for the highest R in the group, -1 for the lowest reward of those that break a constraint, or of all if
             none does; others 0. For ``objective={kind: pairwise, pairs: extremes}``. A group in which nothing keeps
             the constraints is no pair

A rollout that breaks a constraint never has an advantage above 0, whatever its reward. Where no rollout of the batch
keeps them, all are 0.

Differs: the factor of k is at most 1 (in the port it exceeds 1 for k < 0). crraft imitates no baseline answer where no
rollout is left (there with weight 0.5); it skips the group, as both do where the baseline breaks a constraint too.
"""

from typing import Literal

import numpy as np
from pydantic import PositiveFloat

from posttrain.component import frozen
from posttrain.components.advantages import Advantage, State
from posttrain.components.advantages._arithmetic import Reals, per_token
from posttrain.signals import Signal, logp_of
from posttrain.types import Batch, Credit, Trajectory

PART = "calibrated"
"""Part of a score that has the reward whatever the constraints are."""


@frozen
class CGPO(Advantage):
    """Credit for rollouts that keep the constraints, less of it far from the reference."""

    rule: Literal["crpg", "crraft", "codpo"] = "crpg"
    """How the policy is updated."""
    max_kl: PositiveFloat = 10.0
    """K in nats, of a whole rollout; the port demands it, and the paper's is not known."""
    role: str = "reference"
    """The model that rollouts should stay close to."""

    @property
    def needs(self) -> frozenset[Signal]:
        """Log-probabilities of the reference."""
        return frozenset({logp_of(self.role)})

    @property
    def chooses(self) -> bool:
        """Whether only some rollouts of a group have credit."""
        return self.rule != "crpg"

    def __call__(self, state: State, batch: Batch) -> tuple[State, Credit]:
        """Metrics: the share of rollouts that break a constraint, and the mean of k."""
        return_N = batch.return_N
        k_N = self._kl(batch)
        kept_N = return_N > 0.0
        if self.rule == "crpg":
            weight_N = np.where(kept_N, return_N * np.clip(1.0 - k_N / self.max_kl, 0.0, 1.0), 0.0)
            advantage_N = weight_N - weight_N.mean() if len(weight_N) else weight_N
        else:
            advantage_N = np.zeros(len(return_N))
            close_N = kept_N & (k_N <= self.max_kl) if self.rule == "crraft" else kept_N
            open_N = np.array([_reward(t, r) for t, r in zip(batch.trajectories, return_N, strict=True)])
            for group in range(len(batch.groups)):
                self._choose(
                    np.flatnonzero(batch.group_N == group),
                    np.asarray(close_N, np.float64),
                    return_N,
                    open_N,
                    advantage_N,
                )
        metrics = {"broken": float(np.mean(~kept_N)), "kl_k1": float(k_N.mean())} if len(kept_N) else {}
        return state, Credit(advantages=per_token(advantage_N, batch), metrics=metrics)

    def _choose(
        self, own: "np.typing.NDArray[np.int64]", close_N: Reals, return_N: Reals, open_N: Reals, to: Reals
    ) -> None:
        """Writes the advantages of a group to `to`."""
        kept = own[close_N[own].astype(bool)]
        if not len(kept):
            return
        best = kept[np.argmax(return_N[kept])]
        if self.rule == "crraft":
            to[best] = return_N[best]
            return
        broken = own[return_N[own] <= 0.0]
        among = broken if len(broken) else own
        worst = among[np.argmin(open_N[among])]
        if len(broken) or open_N[worst] < open_N[best]:
            to[best], to[worst] = 1.0, -1.0

    def _kl(self, batch: Batch) -> Reals:
        """[N] log pi - log reference, summed over the sampled tokens of a rollout."""
        rows = zip(batch.trajectories, batch.signals[logp_of(self.role)], strict=True)
        return np.array([np.nansum(t.behavior_logp.astype(np.float64) - logp_T) for t, logp_T in rows], np.float64)


def _reward(trajectory: Trajectory, value: float) -> float:
    """The calibrated reward, also of a rollout that breaks a constraint."""
    score = trajectory.score
    part = score.parts.get(PART) if score is not None else None
    return part.value if part is not None else value
