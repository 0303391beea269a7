"""Leave out groups whose rewards hardly differ, by their standard deviation.

Source: the prompt filter of ReST-RL, arXiv:2508.19576, and its released code (github.com/THUDM/ReST-RL,
process_gen_data.py): a population standard deviation below 0.05 drops the prompt.

Differs: the authors filter prompts once, by attempts before training; this filters the groups that are learned from.
"""

from collections.abc import Sequence

import numpy as np
from pydantic import NonNegativeFloat

from posttrain.component import frozen
from posttrain.components.filters import Dropped, Filter, State
from posttrain.types import Group


@frozen
class Deviation(Filter):
    """Keeps groups that hold enough of a comparison."""

    least: NonNegativeFloat = 0.05
    """Smallest population standard deviation of a group that is kept, in units of reward."""

    def __call__(self, state: State, groups: Sequence[Group]) -> tuple[State, list[Group], list[Dropped]]:
        """Split by the deviation."""
        kept, dropped = [], []
        for group in groups:
            deviation = float(np.std(group.rewards))
            if deviation >= self.least:
                kept.append(group)
            else:
                reason = f"rewards deviate by {deviation:.3g}, less than {self.least:g}"
                dropped.append(Dropped(group=group, reason=reason))
        return state, kept, dropped
