"""Drops groups whose reward standard deviation is below a bound.

Source: the prompt filter of ReST-RL, arXiv:2508.19576, and its released code (github.com/THUDM/ReST-RL,
process_gen_data.py): a population standard deviation below 0.05 drops the prompt.

Differs: the authors filter prompts once, by rollouts before training. This filters the groups of every step.
"""

from collections.abc import Sequence

import numpy as np
from pydantic import NonNegativeFloat

from posttrain.component import frozen
from posttrain.components.filters import Dropped, Filter, State
from posttrain.types import Group


@frozen
class Std(Filter):
    """Keeps groups whose reward std is at least `least`."""

    least: NonNegativeFloat = 0.05
    """Smallest population standard deviation of a group that is kept, in units of reward."""

    @property
    def needs_several(self) -> bool:
        """True, unless any group is kept."""
        return self.least > 0

    def __call__(self, state: State, groups: Sequence[Group]) -> tuple[State, list[Group], list[Dropped]]:
        """Split by the std of each group's rewards."""
        kept, dropped = [], []
        for group in groups:
            std = float(np.std(group.rewards))
            if std >= self.least:
                kept.append(group)
            else:
                reason = f"the std of the rewards is {std:.3g}, below {self.least:g}"
                dropped.append(Dropped(group=group, reason=reason))
        return state, kept, dropped
