r"""Keeps the best and the worst turn of each node of a search, where they are far enough apart, for the better half.

Source: Optima, arXiv:2410.08115, and its release (thunlp/Optima at 4017740, train/monte_carlo). A pair is kept if the
value of the better turn is above `floor` and the two differ by more than `gap`; the recipe's names are crossed,
`initial_dpo_min_value` is the gap and `initial_dpo_epsilon` the floor. The pairs of a task are sorted by the value of
the better turn, and the better half is kept, at least one.
"""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from pydantic import NonNegativeFloat

from posttrain.component import frozen
from posttrain.components.filters import Dropped, Filter, State
from posttrain.types import Group


@frozen
class TurnPairs(Filter):
    """Two turns of each of the better nodes."""

    floor: float = 0.4
    """Value that the better turn must pass."""
    gap: NonNegativeFloat = 0.2
    """Difference of values that the two must pass."""
    half: bool = True
    """Whether the better half of a task's pairs is kept, or all."""

    @property
    def needs_several(self) -> bool:
        """True: one turn is no pair."""
        return True

    def __call__(self, state: State, groups: Sequence[Group]) -> tuple[State, list[Group], list[Dropped]]:
        """Keep the pairs, as groups of two."""
        places: dict[str, list[int]] = {}
        reasons: dict[int, str] = {}
        for i, group in enumerate(groups):
            reward_N = group.rewards
            if len(group) < 2:
                reasons[i] = "a single turn"
            elif reward_N.max() <= self.floor:
                reasons[i] = f"the best value is {reward_N.max():.3g}, not above {self.floor:g}"
            elif reward_N.max() - reward_N.min() <= self.gap:
                reasons[i] = f"the values differ by {reward_N.max() - reward_N.min():.3g}, not above {self.gap:g}"
            else:
                places.setdefault(group.trajectories[0].task.key, []).append(i)
        for own in places.values():
            own.sort(key=lambda i: -float(groups[i].rewards.max()))
            for i in own[max(len(own) // 2, 1) :] if self.half else ():
                reasons[i] = "not in the better half of the task's pairs"
        kept, dropped = list[Group](), list[Dropped]()
        for i, group in enumerate(groups):
            if i in reasons:
                dropped.append(Dropped(group=group, reason=reasons[i]))
                continue
            best, worst = int(np.argmax(group.rewards)), int(np.argmin(group.rewards))
            pool = group.pool or tuple(group.rewards.tolist())
            pair = tuple(t for k, t in enumerate(group) if k in (best, worst))
            rest = tuple(t for k, t in enumerate(group) if k not in (best, worst))
            kept.append(replace(group, trajectories=pair, pool=pool))
            if rest:
                reason = "neither the best nor the worst turn"
                dropped.append(Dropped(group=replace(group, trajectories=rest), reason=reason))
        return state, kept, dropped
