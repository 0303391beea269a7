"""Keeps two rollouts of each group: the one with the highest reward, and one to compare it with.

Source: Dong et al. 2024, arXiv:2405.07863, section 4.2: the best and the worst of n rollouts make a pair for DPO. Shen
and Zhang 2024 (Policy Filtration), arXiv:2409.06957, section 4: PPO learns from the best and the worst, or from the
best and a random other, since a reward model is most reliable at the ends of its scale. The paper draws the best with
probability 1/2, and the other one with the rest. Here one of each is kept, which is the same in expectation.

Differs: a length penalty belongs in the reward here, so that it decides both which two are taken and which of the two
is preferred. In the released code it decides the first, and the rewards without it decide the second. The random choice
is a function of what was sampled: the same rollouts give the same choice.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar, Literal

import numpy as np
from pydantic import NonNegativeFloat, PositiveInt

from posttrain.component import frozen
from posttrain.components.filters import Dropped, Filter, State
from posttrain.types import Group, IntArray


@frozen
class BestAndWorst(Filter):
    """Keeps a pair of each group. Of equal rewards the first rollout is taken."""

    RENAMED: ClassVar = {"attempts": "min_rollouts"}

    against: Literal["worst", "second", "random"] = "worst"
    """What the best is compared with: the rollout with the lowest reward, the one with the second highest, or any other
    one, each with the same probability."""
    margin: NonNegativeFloat | None = 1e-6
    """Groups in which the two differ by no more are dropped, in units of reward. None keeps every group; one of equal
    rewards gives its first two rollouts."""
    min_rollouts: PositiveInt = 2
    """Groups with fewer rollouts, for instance because graders failed, are dropped whole. With 1, a group of one
    rollout is kept if `margin` allows it."""

    def __call__(self, state: State, groups: Sequence[Group]) -> tuple[State, list[Group], list[Dropped]]:
        """Keep two rollouts of each group whose rewards differ enough."""
        kept, dropped = [], []
        for group in groups:
            if len(group) < self.min_rollouts:
                dropped.append(Dropped(group=group, reason=f"{len(group)} rollouts, fewer than {self.min_rollouts}"))
                continue
            order = np.argsort(-group.rewards, kind="stable")
            best, other = order[0], self._other(group, order)
            margin = group.rewards[best] - group.rewards[other]
            if self.margin is not None and margin <= self.margin:
                reason = f"the best is {margin:g} above the {self._name}, no more than {self.margin:g}"
                dropped.append(Dropped(group=group, reason=reason))
                continue
            pair = tuple(t for i, t in enumerate(group) if i in (best, other))
            rest = tuple(t for i, t in enumerate(group) if i not in (best, other))
            kept.append(replace(group, trajectories=pair, pool=group.pool or tuple(group.rewards.tolist())))
            if rest:
                reason = f"neither the best nor the {self._name}"
                dropped.append(Dropped(group=replace(group, trajectories=rest), reason=reason))
        return state, kept, dropped

    @property
    def _name(self) -> str:
        return "random other" if self.against == "random" else self.against

    def _other(self, group: Group, order: IntArray) -> int:
        """Index of the rollout to keep with the best, or the best in a group of one; `order` is from best to worst."""
        others = order[1:]
        if not len(others):
            return int(order[0])
        if self.against == "random":
            return int(others[_drawn(group, len(others))])
        return int(others[0 if self.against == "second" else np.argmin(group.rewards[others])])


def _drawn(group: Group, count: int) -> int:
    """A number below `count`, uniform over groups: a function of the group's key and the sampled ids."""
    digest = hashlib.blake2b(group.key.encode(), digest_size=8)
    for trajectory in group:
        digest.update(trajectory.token_ids.tobytes() + b";")
    return int.from_bytes(digest.digest(), "little") * count >> 64
