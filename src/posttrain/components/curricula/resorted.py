"""ADCL: tasks from easy to hard in fixed batches, each sorted anew by the present policy before it is trained on.

Source: Zhang et al. 2025, arXiv:2505.08364, by a review of its steps; no code is published. Every task's difficulty is
measured with the policy as it is at the first step: 1 - the share of its rollouts that is correct. The tasks are then
sorted, the easiest first, and cut into `batches` contiguous batches of nearly equal size. Before one is trained on, the
difficulty of its tasks alone is measured again, and they are sorted within it; no task ever changes its batch. After
the last batch the first one follows.

``inversions`` is the share of the batch's pairs whose order has turned, the normalized inversion ratio of the paper; a
tie, before or after, is no turn. Tasks of equal difficulty keep their order. What is measured counts as sampled
(``probe_tokens``).

`resort` false is the static curriculum that it is compared with.

Differs: the paper's number of batches and of rollouts for a measurement are not known. A task of which no rollout could
be scored keeps the difficulty that it had, or else is among the hardest.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated

import numpy as np
from pydantic import Field

from posttrain.component import frozen
from posttrain.components.curricula import Curriculum, Pick, Probe, State
from posttrain.components.curricula._draws import Reals
from posttrain.types import Group, Task


@frozen
class Resorted(Curriculum):
    """Takes the tasks from easy to hard, in batches that are sorted when they begin."""

    batches: Annotated[int, Field(ge=1, le=10_000)] = 4
    """K: number of batches, at most as many as there are tasks."""
    n: Annotated[int, Field(ge=1, le=1024)] | None = None
    """R: rollouts of each task in a measurement; None takes as many as in training."""
    resort: bool = True
    """Whether a batch is measured and sorted when it begins; the first measurement sorts it otherwise."""

    def start(self) -> State:
        """State before the first step: nothing measured, no task taken."""
        return {"taken": 0, "sorted": 0, "inversions": -1.0}

    async def look(
        self, state: State, pool: Sequence[Task], probe: Probe, count: int, *, seed: int, step: int, refill: int = 0
    ) -> State:
        """Measure all tasks in the first step, and those of every batch from which the next choice takes its first."""
        if "order" not in state:
            hard_P = _measured(await probe.collect(pool, self.n), np.full(len(pool), 1.0))
            order_P = np.argsort(hard_P, kind="stable")
            state = {**state, "order": order_P, "difficulty": hard_P, "sorted": 1}
        while self.resort and state["sorted"] < self._batch(state["taken"] + count - 1, len(pool)) + 1:
            state = await self._sorted(state, pool, probe)
        return state

    async def _sorted(self, state: State, pool: Sequence[Task], probe: Probe) -> State:
        """The state with the next batch measured and sorted; each pass over the tasks sorts it again."""
        order_P, hard_P = state["order"].copy(), state["difficulty"].copy()
        first, end = self._span(state["sorted"], len(pool))
        own_B = order_P[first:end]
        old_B = hard_P[own_B]
        new_B = _measured(await probe.collect([pool[i] for i in own_B.tolist()], self.n), old_B)
        hard_P[own_B] = new_B
        order_P[first:end] = own_B[np.argsort(new_B, kind="stable")]
        counted = {"inversions": inversions(old_B, new_B), "sorted": state["sorted"] + 1}
        return {**state, "order": order_P, "difficulty": hard_P, **counted}

    def _batch(self, place: int, size: int) -> int:
        """Number of the batch, over all passes, that the task taken at this place is in."""
        count = min(self.batches, size)
        ends_K = [(k + 1) * size // count for k in range(count)]
        return place // size * count + int(np.searchsorted(ends_K, place % size, side="right"))

    def _span(self, batch: int, size: int) -> tuple[int, int]:
        """First place of a batch in the order, and that after its last."""
        count = min(self.batches, size)
        k = batch % count
        return k * size // count, (k + 1) * size // count

    def select(
        self, state: State, pool: Sequence[Task], count: int, *, seed: int, step: int, refill: int = 0
    ) -> tuple[State, list[Pick]]:
        """Take the next `count` tasks."""
        taken, size = state["taken"], len(pool)
        if "order" not in state:
            picks = [Pick(task=pool[(taken + i) % size]) for i in range(count)]
            return {**state, "taken": taken + count}, picks
        places = [int(state["order"][(taken + i) % size]) for i in range(count)]
        batch = [self._batch(taken + i, size) % min(self.batches, size) for i in range(count)]
        picks = [
            Pick(task=pool[p], weight=float(state["difficulty"][p]), reason=f"batch {b + 1}")
            for p, b in zip(places, batch, strict=True)
        ]
        return {**state, "taken": taken + count}, picks

    def report(self, state: State) -> Mapping[str, float]:
        """Batches sorted so far, and the share of turned pairs in the newest."""
        found = {"sorted_batches": float(state["sorted"])}
        return found if state["inversions"] < 0.0 else {**found, "inversions": float(state["inversions"])}


def inversions(old_B: Reals, new_B: Reals) -> float:
    """Share of pairs whose strict order has turned; 0 for fewer than two."""
    count = len(old_B)
    if count < 2:
        return 0.0
    turned = np.sign(old_B[:, None] - old_B) * np.sign(new_B[:, None] - new_B) < 0
    return float(turned.sum() / (count * (count - 1)))


def _measured(groups: Sequence[Group], known_P: Reals) -> Reals:
    """1 - the share of correct rollouts of each group; what was known where none could be scored."""
    return np.array([1.0 - g.solved if len(g) else k for g, k in zip(groups, known_P.tolist(), strict=True)])
