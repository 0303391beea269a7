"""Of each group, keep the attempt with the highest reward and one to compare it with.

Source: Dong et al. 2024, arXiv:2405.07863, section 4.2: the best and the worst of n attempts make a pair for DPO. Shen
and Zhang 2024 (Policy Filtration), arXiv:2409.06957, section 4: PPO learns from the best and the worst, or from the
best and a random other, since a reward model is most often right at the ends of its scale. The paper draws the best
with chance 1/2, and its companion with the rest; here one of each is kept, which is the same in expectation.

Differs: a length penalty belongs in the reward here, so that what is best by it is also what is preferred. In the
released code it decides which two are taken, and the bare rewards which of the two is preferred. What is random follows
from what was sampled: the same attempts give the same choice.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
from pydantic import NonNegativeFloat, PositiveInt

from posttrain.component import frozen
from posttrain.components.filters import Dropped, Filter, State
from posttrain.types import Group, IntArray


@frozen
class BestAndWorst(Filter):
    """Leaves pairs; of equal rewards the first attempt is taken."""

    against: Literal["worst", "second", "random"] = "worst"
    """What the best is compared with: the attempt of the lowest reward, that of the second highest, or any other one,
    each with the same chance."""
    margin: NonNegativeFloat | None = 1e-6
    """Groups in which the two differ by no more are left out, in units of reward; None keeps every group, and one of
    equal rewards gives its first two attempts."""
    attempts: PositiveInt = 2
    """Groups that hold fewer attempts, where graders failed for instance, are left out whole; with 1, one that holds a
    single attempt is kept, if `margin` allows it."""

    def __call__(self, state: State, groups: Sequence[Group]) -> tuple[State, list[Group], list[Dropped]]:
        """Keep two attempts of each group that holds a comparison."""
        kept, dropped = [], []
        for group in groups:
            if len(group) < self.attempts:
                dropped.append(Dropped(group=group, reason=f"{len(group)} attempts, fewer than {self.attempts}"))
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
        """Place of the attempt beside the best; the best itself where it is alone. `order` is from best to worst."""
        others = order[1:]
        if not len(others):
            return int(order[0])
        if self.against == "random":
            return int(others[_drawn(group, len(others))])
        return int(others[0 if self.against == "second" else np.argmin(group.rewards[others])])


def _drawn(group: Group, count: int) -> int:
    """A number below `count`, each with the same chance over groups: it depends on the key and the sampled ids."""
    digest = hashlib.blake2b(group.key.encode(), digest_size=8)
    for trajectory in group:
        digest.update(trajectory.token_ids.tobytes() + b";")
    return int.from_bytes(digest.digest(), "little") * count >> 64
