"""Domains in fixed shares: a domain is drawn for each task, and then the next unseen task of it.

Source: MoDoMoDo, arXiv:2505.24871, section 3: a point of the simplex over data sets is drawn from, each with its own
reward (`rewards/routed`). `posttrain diagnose mixture RUNS...` proposes the shares of a further run from those of
earlier ones and their scores.

A domain that is used up begins again in a new order, which ``exhausted`` counts; without shares, or with one domain,
the draw is uniform over domains.

Differs: training ends in the paper when a drawn data set has no unseen example left.
"""

from collections.abc import Mapping, Sequence
from dataclasses import field

import numpy as np
from pydantic import NonNegativeFloat

from posttrain.component import frozen, nearest
from posttrain.components.curricula import Curriculum, Pick, State
from posttrain.components.curricula._arms import Arms, report_of, seen_of
from posttrain.components.curricula._draws import generator
from posttrain.errors import UserError
from posttrain.types import Group, Task

DOMAIN = ("domain",)


@frozen
class ByShare(Curriculum):
    """Draws domains by shares, and tasks of each without replacement."""

    shares: Mapping[str, NonNegativeFloat] = field(default_factory=dict)
    """Share of each domain, in any unit; one that is not named has none. Empty draws all alike."""

    def check(self, tasks: Sequence[Task], count: int) -> None:
        """Every named domain must have tasks, and some share must be above 0."""
        known = sorted({task.domain for task in tasks})
        for name in self.shares:
            if name not in known:
                raise UserError(
                    f"curriculum.shares names the domain '{name}', which no task has; {nearest(name, known)}"
                )
        if self.shares and not any(self.shares.values()):
            raise UserError("curriculum.shares are all 0, so that no domain can be drawn; give one a share above 0")

    def notes(self, tasks: Sequence[Task]) -> list[str]:
        """One domain, or equal shares."""
        names = sorted({task.domain for task in tasks})
        drawn = [self.shares.get(name, 0.0) for name in names] if self.shares else [1.0] * len(names)
        above = sum(share > 0.0 for share in drawn)
        if above == 1:
            return [f"curriculum {self.kind}: only one domain has tasks and a share, so that they are drawn uniformly"]
        if len(set(drawn)) == 1:
            return [f"curriculum {self.kind}: all {len(names)} domains have the same share, and are drawn alike"]
        return []

    def start(self) -> State:
        """State before the first step: no task drawn."""
        return {"position": {}, "exhausted": 0}

    def select(
        self, state: State, pool: Sequence[Task], count: int, *, seed: int, step: int, refill: int = 0
    ) -> tuple[State, list[Pick]]:
        """Draw a domain for each task, and take its next task."""
        arms = Arms.of(state, pool, DOMAIN)
        weight_A = np.array([self.shares.get(name, 0.0) if self.shares else 1.0 for name in arms.names])
        share_A = weight_A / weight_A.sum()
        drawn_N = generator(seed, step, refill, 0).choice(len(arms.names), size=count, p=share_A)
        position, places = arms.next_in_epochs(drawn_N, state["position"], seed)
        sizes = {name: int((arms.arm_P == arm).sum()) for arm, name in enumerate(arms.names)}
        exhausted = sum(position[name] > sizes[name] for name in position)
        following = {**state, "position": position, "exhausted": exhausted, **arms.state}
        return following, arms.picks(pool, places, share_A)

    def observe(self, state: State, groups: Sequence[Group]) -> State:
        """Keep the share of correct rollouts of each domain, for the report."""
        return {**state, "seen": seen_of(groups, DOMAIN)}

    def report(self, state: State) -> Mapping[str, float]:
        """Share of the tasks and of correct rollouts by domain, and domains that have begun again."""
        names = list(state.get("arms", ()))
        return {**report_of(state.get("seen", {}), names), "exhausted": float(state["exhausted"])}
