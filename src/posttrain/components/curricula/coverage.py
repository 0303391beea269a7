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

from pydantic import Field

from posttrain.component import frozen
from posttrain.components.curricula import Curriculum, Pick, State
from posttrain.components.curricula._draws import generator
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
        return {"covered": [], "tries": {}, "rounds": 0, "open": 0}

    def select(
        self, state: State, pool: Sequence[Task], count: int, *, seed: int, step: int, refill: int = 0
    ) -> tuple[State, list[Pick]]:
        """Draw `count` open tasks."""
        parents = _parents(pool)
        places = self._open(state, pool, parents)
        if not places:
            state = {**state, "covered": [], "tries": {}, "rounds": state["rounds"] + 1}
            places = self._open(state, pool, parents)
        rng = generator(seed, step, refill, 0x7C)
        draws = rng.permutation(len(places)).tolist()
        order = sorted((state["tries"].get(pool[i].key, 0), draw, i) for i, draw in zip(places, draws, strict=True))
        chosen = [order[i % len(order)][2] for i in range(count)]
        picks = [Pick(task=pool[i], weight=float(state["tries"].get(pool[i].key, 0)), reason="open") for i in chosen]
        return {**state, "open": len(places)}, picks

    def observe(self, state: State, groups: Sequence[Group]) -> State:
        """Count the tries, and mark what was reached."""
        covered, tries = dict.fromkeys(state["covered"]), dict(state["tries"])
        for key, rollouts in scored_of(groups).items():
            tries[key] = tries.get(key, 0) + 1
            if any(rollout.solved for rollout in rollouts):
                covered[key] = None
        return {**state, "covered": list(covered), "tries": tries}

    def report(self, state: State) -> Mapping[str, float]:
        """Covered tasks and open ones in this round, and the rounds before."""
        covered = float(len(state["covered"]))
        return {"covered": covered, "open": float(state["open"]), "rounds": float(state["rounds"])}

    def _open(self, state: State, pool: Sequence[Task], parents: Sequence[str | None]) -> list[int]:
        """Places of the tasks that may be drawn."""
        covered, tries = set(state["covered"]), state["tries"]
        return [
            place
            for place, (task, parent) in enumerate(zip(pool, parents, strict=True))
            if (self.order == "random" or parent is None or parent in covered)
            and not (self.close and (task.key in covered or tries.get(task.key, 0) >= self.tries))
        ]


def _parents(pool: Sequence[Task]) -> list[str | None]:
    """The key of each task's parent; None where the pool has none."""
    lines: dict[tuple[Any, Any], str] = {(t.fields.get("source"), t.fields.get("line")): t.key for t in pool}
    return [
        lines.get((task.fields.get("source"), task.fields["parent"])) if task.fields.get("parent") is not None else None
        for task in pool
    ]
