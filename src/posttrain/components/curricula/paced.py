"""Tasks with their difficulty for the policy: the mean reward of recent groups minus that of the task's own rollouts.

Source: DeepVideo-R1, Park et al. 2025, arXiv:2506.07464, section 3.3 and appendix C: Delta = mean over a history of
group means - mean reward of the task's group; above 0 the task is hard, below 0 easy. The history holds the 100 most
recent means. The task goes to the rollout with Delta in its field ``delta`` (`rollouts/adjusted` gives hints to hard
ones and noise to easy ones). Relative difficulty is better than absolute in the paper's ablation.

A task's own rollouts are `probe` of them, sampled right before the step (``probe_tokens``); with None they are those of
its last visit, and a task without one has no ``delta``. Tasks come in shuffled epochs.

Differs: the paper says in one place that the history is of the last W steps, in another that it is of 100 samples. How
the group of a task is sampled before it is adjusted is not stated.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any

import numpy as np
from pydantic import Field, PositiveInt

from posttrain.component import frozen
from posttrain.components.curricula import Curriculum, Pick, Probe, State
from posttrain.components.curricula._draws import shuffled_epochs
from posttrain.types import Group, Task


@frozen
class Paced(Curriculum):
    """Shuffled epochs of tasks that know how hard they are now."""

    window: PositiveInt = 100
    """Group means in the history."""
    probe: Annotated[int, Field(ge=1, le=1024)] | None = 4
    """Rollouts of each task before it is adjusted; None takes the mean of its last visit."""

    @property
    def remembers_tasks(self) -> bool:
        """Whether a task's own visits count."""
        return self.probe is None

    def start(self) -> State:
        """State before the first step: no mean known."""
        return {"position": 0, "history": [], "own": {}}

    async def look(
        self, state: State, pool: Sequence[Task], probe: Probe, count: int, *, seed: int, step: int, refill: int = 0
    ) -> State:
        """Sample the tasks that are chosen next, and remember their means."""
        if self.probe is None:
            return state
        places = shuffled_epochs(len(pool), state["position"], count, [seed])
        groups = await probe.collect([pool[i] for i in places.tolist()], self.probe)
        means = {key: mean for key, mean in map(_mean, groups) if mean is not None}
        return {**state, "own": means, "history": self._history(state, list(means.values()))}

    def select(
        self, state: State, pool: Sequence[Task], count: int, *, seed: int, step: int, refill: int = 0
    ) -> tuple[State, list[Pick]]:
        """Take the next `count` tasks, with their difficulty."""
        places = shuffled_epochs(len(pool), state["position"], count, [seed])
        picks = [self._pick(pool[i], state) for i in places.tolist()]
        return {**state, "position": state["position"] + count}, picks

    def observe(self, state: State, groups: Sequence[Group]) -> State:
        """Without a probe, remember the means of the step's groups."""
        if self.probe is not None:
            return state
        means = {key: mean for key, mean in map(_mean, groups) if mean is not None}
        return {**state, "own": {**state["own"], **means}, "history": self._history(state, list(means.values()))}

    def report(self, state: State) -> Mapping[str, float]:
        """The mean of the history."""
        return {"history": float(np.mean(state["history"]))} if state["history"] else {}

    def _history(self, state: State, means: list[float]) -> list[float]:
        return [*state["history"], *means][-self.window :]

    def _pick(self, task: Task, state: State) -> Pick:
        own = state["own"].get(task.key)
        if own is None:
            return Pick(task=task)
        delta = float(np.mean(state["history"])) - own
        fields: dict[str, Any] = {**task.fields, "delta": delta}
        return Pick(task=replace(task, fields=fields), weight=delta, reason="hard" if delta > 0 else "easy")


def _mean(group: Group) -> tuple[str, float | None]:
    """Key and mean reward of a group, without rollouts whose scoring failed."""
    values = [t.score.value for t in group if t.score is not None and t.score.status != "error"]
    key = group.trajectories[0].task.key if len(group) else group.key
    return key, float(np.mean(values)) if values else None
