"""Questions of a fuzzing loop: lines that are not reached yet, behind ones that are.

Source: R1-Fuzz, arXiv:2509.20384, of which abstract and notes could be read: new coverage gives new questions. The rule
is our own: a task is open where it is not covered, and its parent is or it has none. It is closed when one of its
rollouts is correct, or after `tries` steps; covering it opens what is behind it. Each step draws from the open tasks,
none twice while there are enough, the least tried first and else at random. When none is open, all is forgotten.

The parent is the task of the same ``source`` whose ``line`` is this one's field ``parent``. With ``order: random`` any
task may be drawn that is not closed, and with ``close: false`` tasks stay open.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from posttrain.component import frozen
from posttrain.components.curricula import Curriculum, Pick, State
from posttrain.components.curricula._draws import Places, generator, remember
from posttrain.components.curricula._success import scored_of
from posttrain.types import Group, Task


@frozen
class Coverage(Curriculum):
    """Takes tasks at the edge of what is covered."""

    tries: Annotated[int, Field(ge=1, le=10_000)] = 5
    """Steps after which a task that was not covered is closed."""
    order: Literal["frontier", "random"] = "frontier"
    """Whether a parent must be covered first."""
    close: bool = True
    """Whether covered tasks, and those that were tried often, are not drawn again."""

    @property
    def remembers_tasks(self) -> bool:
        """True."""
        return True

    def start(self) -> State:
        """State before the first step: nothing is covered."""
        return {"rounds": 0, "open": 0, "asked": {}}

    def select(
        self, state: State, pool: Sequence[Task], count: int, *, seed: int, step: int, refill: int = 0
    ) -> tuple[State, list[Pick]]:
        """Draw `count` open tasks."""
        if "parent" not in state:
            state = {**state, "parent": _parents(pool), **_nothing(len(pool))}
        open_O = self._open(state)
        if not len(open_O):
            state = {**state, **_nothing(len(pool)), "rounds": state["rounds"] + 1}
            open_O = self._open(state)
        tries_P = state["tries"]
        order = _least_tried(open_O, tries_P, count, generator(seed, step, refill, 0x7C))
        chosen = order[np.arange(count) % len(order)]
        picks = [Pick(task=pool[i], weight=float(tries_P[i]), reason="open") for i in chosen.tolist()]
        return {**state, "open": len(open_O), "asked": remember(state["asked"], pool, order)}, picks

    def observe(self, state: State, groups: Sequence[Group]) -> State:
        """Count the tries, and mark what was reached."""
        covered_P, tries_P = state["covered"].copy(), state["tries"].copy()
        for key, rollouts in scored_of(groups).items():
            place = state["asked"].get(key)
            if place is None:
                continue
            tries_P[place] += 1
            covered_P[place] |= any(rollout.solved for rollout in rollouts)
        return {**state, "covered": covered_P, "tries": tries_P, "asked": {}}

    def report(self, state: State) -> Mapping[str, float]:
        """Covered tasks and open ones in this round, and the rounds before."""
        covered = float(state["covered"].sum()) if "covered" in state else 0.0
        return {"covered": covered, "open": float(state["open"]), "rounds": float(state["rounds"])}

    def _open(self, state: State) -> Places:
        """Places of the tasks that may be drawn."""
        covered_P, parent_P = state["covered"], state["parent"]
        open_P = np.ones(len(parent_P), bool)
        if self.order == "frontier":
            open_P = (parent_P < 0) | covered_P[parent_P]
        if self.close:
            open_P &= ~covered_P & (state["tries"] < self.tries)
        return np.flatnonzero(open_P)


def _nothing(size: int) -> dict[str, Any]:
    """What is covered and tried before anything is."""
    return {"covered": np.zeros(size, bool), "tries": np.zeros(size, np.int32)}


def _least_tried(place_O: Places, tries_P: NDArray[np.int32], count: int, rng: np.random.Generator) -> Places:
    """At most `count` of the places, none twice: those with the fewest tries first, in random order among equals."""
    order_O = np.empty_like(place_O)
    order_O[rng.permutation(len(place_O))] = place_O
    tries_O, chosen, left = tries_P[order_O], list[Places](), count
    fewest = tries_O.min()
    while left > 0 and len(order_O):
        chosen.append(order_O[tries_O == fewest][:left])
        left -= len(chosen[-1])
        more_O = tries_O > fewest
        order_O, tries_O = order_O[more_O], tries_O[more_O]
        fewest = tries_O.min(initial=np.iinfo(np.int32).max)
    return np.concatenate(chosen)


def _parents(pool: Sequence[Task]) -> NDArray[np.int32]:
    """[P] the place of each task's parent; -1 where the pool has none."""
    place_of = {(task.fields.get("source"), task.fields.get("line")): place for place, task in enumerate(pool)}
    parent_P = np.full(len(pool), -1, np.int32)
    for place, task in enumerate(pool):
        if task.fields.get("parent") is not None:
            parent_P[place] = place_of.get((task.fields.get("source"), task.fields["parent"]), -1)
    return parent_P
