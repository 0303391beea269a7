"""Keeps the share of the step's groups with the highest reward standard deviation.

Source: the uncertainty filter of RAGEN, Wang et al. 2025, arXiv:2504.20073, section 3.3 (StarPO-S), which keeps a
quarter of the groups by the standard deviation of their rewards; UFO (arXiv:2507.14295) trains with it.

Differs: the std is that of the rollouts' scores, with the variance of a population, so that it is 0 in a group of one.
Of equal stds the first group is kept. Groups of equal rewards are kept too where there are not enough others.
"""

from collections.abc import Sequence
from typing import Annotated

import numpy as np
from pydantic import Field

from posttrain.component import frozen
from posttrain.components.filters import Dropped, Filter, State
from posttrain.types import Group

Share = Annotated[float, Field(gt=0.0, le=1.0)]


@frozen
class MostVaried(Filter):
    """Ranks the groups of a step by the standard deviation of their rewards."""

    keep: Share = 0.25
    """Share of the groups that is kept, rounded down, and at least one."""

    def __call__(self, state: State, groups: Sequence[Group]) -> tuple[State, list[Group], list[Dropped]]:
        """Keep the groups with the highest std, in the order of the step."""
        spread_G = np.array([group.rewards.std() for group in groups])
        count = max(1, int(self.keep * len(groups) + 1e-9))
        chosen = set(np.argsort(-spread_G, kind="stable")[:count].tolist())
        reason = f"not among the {self.keep:g} of the groups whose rewards differ most"
        dropped = [Dropped(group=group, reason=reason) for i, group in enumerate(groups) if i not in chosen]
        return state, [group for i, group in enumerate(groups) if i in chosen], dropped
