"""Of each group, keep the attempt with the highest reward and one to compare it with.

Source: Dong et al. 2024, arXiv:2405.07863, section 4.2: the best and the worst of n attempts make a pair for DPO.

Differs: a length penalty belongs in the reward here, so that what is best by it is also what is preferred. In the
released code it decides which two are taken, and the bare rewards which of the two is preferred.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated, Literal

import numpy as np
from pydantic import Field, NonNegativeFloat

from posttrain.component import frozen
from posttrain.filters import Dropped, Filter, State
from posttrain.types import Group


@frozen
class BestAndWorst(Filter):
    """Leaves pairs; of equal rewards the first attempt is taken."""

    against: Literal["worst", "second"] = "worst"
    """What the best is compared with: the attempt of the lowest reward, or that of the second highest."""
    margin: NonNegativeFloat = 1e-6
    """Groups in which the two differ by no more are left out, in units of reward."""
    attempts: Annotated[int, Field(ge=2)] = 2
    """Groups that hold fewer attempts, where graders failed for instance, are left out whole."""

    def __call__(self, state: State, groups: Sequence[Group]) -> tuple[State, list[Group], list[Dropped]]:
        """Keep two attempts of each group that holds a comparison."""
        kept, dropped = [], []
        for group in groups:
            if len(group) < self.attempts:
                dropped.append(Dropped(group=group, reason=f"{len(group)} attempts, fewer than {self.attempts}"))
                continue
            order = np.argsort(-group.rewards, kind="stable")
            best, other = order[0], order[1 if self.against == "second" else int(np.argmin(group.rewards[order]))]
            margin = group.rewards[best] - group.rewards[other]
            if margin <= self.margin:
                reason = f"the best is {margin:g} above the {self.against}, no more than {self.margin:g}"
                dropped.append(Dropped(group=group, reason=reason))
                continue
            pair = tuple(t for i, t in enumerate(group) if i in (best, other))
            rest = tuple(t for i, t in enumerate(group) if i not in (best, other))
            kept.append(replace(group, trajectories=pair, pool=group.pool or tuple(group.rewards.tolist())))
            if rest:
                reason = f"neither the best nor the {self.against}"
                dropped.append(Dropped(group=replace(group, trajectories=rest), reason=reason))
        return state, kept, dropped
