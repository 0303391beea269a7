"""SEC: a bandit over categories of tasks, whose reward is their mean absolute advantage.

Source: Self-Evolving Curriculum, Chen et al. 2025, arXiv:2505.14970, section 3; defaults from the authors' released
runs. The gain of a category is the mean over its rollouts of |A|, with A the group-normalized advantage of GRPO. Then Q
<- (1 - rate) Q + rate * gain, from Q = 0. The next step draws the category of every task with probability proportional
to exp(Q / temperature). With rewards of 0 and 1 the gain is largest where half of the rollouts are correct, and 0 where
all or none are. Such a category keeps the share of Q = 0, so that it is still drawn when the policy changes.

Differs: the release shuffles the tasks of all categories anew when one of them runs short; here each category goes
through its own tasks without replacement, and starts again when they are used up. The advantage is computed from the
scores, independent of the policy's estimator.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, PositiveFloat

from posttrain.component import frozen, nearest
from posttrain.components.curricula import Curriculum, State
from posttrain.errors import UserError
from posttrain.types import Group, Task, value_of

Share = Annotated[float, Field(gt=0.0, le=1.0)]
Reals = NDArray[np.float64]

EPSILON = 1e-6
"""Added to the standard deviation of a group's rewards, as in the release."""


@frozen
class Bandit(Curriculum):
    """Boltzmann sampling of categories by a running mean of their absolute advantages."""

    features: Annotated[tuple[str, ...], Field(min_length=1)] = ("domain",)
    """Definition of a category: ``domain``, or names of fields of the tasks. Several are joined: every combination
    among the tasks is a category."""
    rate: Share = 0.5
    """Share of the newest gain in Q, in (0, 1]; the released runs use 0.5, the release's default is 0.1."""
    temperature: PositiveFloat = 1.0
    """Of the draw, in units of Q. With rewards of 0 and 1, Q is below 1, so that 1 is nearly uniform; the released runs
    use 1 (Countdown), 0.4 (MATH) and 0.2 (two features)."""
    unvisited: Literal["keep", "decay"] = "keep"
    """Q of a category without a task in the step: unchanged (the paper), or updated with a gain of 0 (the release)."""

    def start(self) -> State:
        """State before the first step: no gains, no tasks drawn."""
        return {"q": {}, "position": {}}

    def select(
        self, state: State, pool: Sequence[Task], count: int, *, seed: int, step: int, refill: int = 0
    ) -> tuple[State, list[Task]]:
        """Draw a category for each task, with replacement, and take that category's next task."""
        arms: dict[str, list[Task]] = defaultdict(list)
        for task in pool:
            arms[self._category(task)].append(task)
        names = sorted(arms)
        q_A = np.array([state["q"].get(name, 0.0) for name in names])
        drawn = np.random.default_rng([seed, 0, step, *[refill] * (refill > 0)]).choice(
            len(names), size=count, p=self._shares(q_A)
        )
        position, chosen = dict(state["position"]), []
        for arm in map(int, drawn):
            epoch, place = divmod(position.get(names[arm], 0), len(arms[names[arm]]))
            order = np.random.default_rng([seed, 1 + arm, epoch]).permutation(len(arms[names[arm]]))
            chosen.append(arms[names[arm]][order[place]])
            position[names[arm]] = position.get(names[arm], 0) + 1
        return {"q": dict(zip(names, q_A.tolist(), strict=True)), "position": position}, chosen

    def observe(self, state: State, groups: Sequence[Group]) -> State:
        """Update Q of every category by the gain of its rollouts. Rollouts whose scoring failed do not count."""
        gains: dict[str, list[float]] = defaultdict(list)
        for group in groups:
            scored = [t for t in group if t.score is not None and t.score.status != "error"]
            for trajectory, size in zip(scored, _absolute_advantages([value_of(t) for t in scored]), strict=True):
                gains[self._category(trajectory.task)].append(size)
        q = dict(state["q"])
        for name in sorted({*q, *gains}):
            if name in gains or self.unvisited == "decay":
                gain = float(np.mean(gains[name])) if name in gains else 0.0
                q[name] = (1.0 - self.rate) * q.get(name, 0.0) + self.rate * gain
        return {**state, "q": q}

    def _shares(self, q_A: Reals) -> Reals:
        """[A] probability of each category."""
        weight_A = np.exp((q_A - q_A.max()) / self.temperature)
        return np.asarray(weight_A / weight_A.sum())

    def _category(self, task: Task) -> str:
        """The arm that a task belongs to. Raises `UserError` for a task without one of the features."""
        for name in self.features:
            if name != "domain" and name not in task.fields:
                raise UserError(
                    f"curriculum.features names '{name}', but task {task.key} has no such field; "
                    f"{nearest(name, ('domain', *task.fields))}"
                )
        return " / ".join(task.domain if name == "domain" else str(task.fields[name]) for name in self.features)


def _absolute_advantages(rewards: Sequence[float]) -> list[float]:
    """[N] |A| of rollouts of one task: distance from their mean in units of std; of a single one, its |reward|."""
    reward_N = np.asarray(rewards, np.float64)
    mean, std = (reward_N.mean(), reward_N.std(ddof=1)) if len(reward_N) > 1 else (0.0, 1.0)
    sizes: list[float] = (np.abs(reward_N - mean) / (std + EPSILON)).tolist()
    return sizes
