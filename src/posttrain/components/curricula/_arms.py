"""Categories of tasks as the arms of a bandit: which task is in which, and how much its rollouts teach."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from posttrain.component import nearest
from posttrain.components.curricula import Pick
from posttrain.components.curricula._draws import Places, Reals, shuffled_epochs
from posttrain.components.curricula._success import scored_of
from posttrain.errors import UserError
from posttrain.types import Group, Task, value_of

EPSILON = 1e-6
"""Added to the standard deviation of a group's rewards, as in the releases."""
MOST_IN_REPORT = 32
"""Most categories with metrics of their own."""


def category_of(task: Task, features: Sequence[str]) -> str:
    """The category of a task. Raises `UserError` for a task without one of the features."""
    for name in features:
        if name != "domain" and name not in task.fields:
            raise UserError(
                f"curriculum.features names '{name}', but task {task.key} has no such field; "
                f"{nearest(name, ('domain', *task.fields))}"
            )
    return " / ".join(task.domain if name == "domain" else str(task.fields[name]) for name in features)


def alike(kind: str, tasks: Sequence[Task], features: Sequence[str]) -> list[str]:
    """A note where all tasks have the same category."""
    names = {category_of(task, features) for task in tasks}
    if len(names) > 1:
        return []
    return [
        f"curriculum {kind}: all {len(tasks)} tasks have the same category, {names.pop()!r}, so that they are drawn "
        f"uniformly; give them domains, or name fields of theirs (curriculum.features={list(features)})"
    ]


class Arms:
    """The categories of a pool by name, in alphabetical order."""

    def __init__(self, names: list[str], arm_P: NDArray[np.int16]) -> None:
        """`arm_P` is the index of every task's category."""
        self.names, self.arm_P = names, arm_P

    @classmethod
    def of(cls, state: Mapping[str, Any], pool: Sequence[Task], features: Sequence[str]) -> "Arms":
        """Those in the state, which a first choice makes from the pool."""
        if "arm" in state:
            return cls(list(state["arms"]), state["arm"])
        own = [category_of(task, features) for task in pool]
        names = sorted(set(own))
        if len(names) > np.iinfo(np.int16).max:
            raise UserError(
                f"curriculum.features={list(features)} makes {len(names)} categories of {len(pool)} tasks; a category "
                "needs several tasks: name fields with few values"
            )
        index = {name: place for place, name in enumerate(names)}
        return cls(names, np.array([index[name] for name in own], np.int16))

    @property
    def state(self) -> dict[str, Any]:
        """What `of` reads."""
        return {"arms": self.names, "arm": self.arm_P}

    def members(self, arm: int) -> Places:
        """Places of the tasks of a category."""
        return np.flatnonzero(self.arm_P == arm)

    def next_in_epochs(
        self, drawn: Iterable[int], position: Mapping[str, int], seed: int
    ) -> tuple[dict[str, int], Places]:
        """The next task of the drawn category for each draw, in shuffled epochs of its own, and the new positions."""
        drawn_N = np.fromiter(drawn, np.int64)
        position, place_N = dict(position), np.zeros(len(drawn_N), np.int64)
        for arm in map(int, np.unique(drawn_N)):
            own, begin = self.members(arm), position.get(self.names[arm], 0)
            wanted = drawn_N == arm
            count = int(wanted.sum())
            place_N[wanted] = own[shuffled_epochs(len(own), begin, count, [seed, 1 + arm])]
            position[self.names[arm]] = begin + count
        return position, place_N

    def independent(self, drawn: Iterable[int], rng: np.random.Generator) -> Places:
        """A task of the drawn category for each draw, each with the same probability every time."""
        drawn_N = np.fromiter(drawn, np.int64)
        place_N = np.zeros(len(drawn_N), np.int64)
        for arm in map(int, np.unique(drawn_N)):
            own, wanted = self.members(arm), drawn_N == arm
            place_N[wanted] = own[rng.integers(len(own), size=int(wanted.sum()))]
        return place_N

    def picks(self, pool: Sequence[Task], places: Places, share_A: Reals) -> list[Pick]:
        """The tasks at these places, each with its category and the category's probability."""
        return [
            Pick(task=pool[i], weight=round(float(share_A[self.arm_P[i]]), 6), reason=self.names[self.arm_P[i]])
            for i in places.tolist()
        ]


def softmax(x_A: Reals, temperature: float) -> Reals:
    """[A] probabilities proportional to exp(x / temperature)."""
    weight_A = np.exp((x_A - x_A.max()) / temperature)
    return np.asarray(weight_A / weight_A.sum())


def absolute_advantages(rewards: Sequence[float]) -> list[float]:
    """[N] |A| of rollouts of one task: distance from their mean in units of std; of a single one, its |reward|."""
    reward_N = np.asarray(rewards, np.float64)
    mean, std = (reward_N.mean(), reward_N.std(ddof=1)) if len(reward_N) > 1 else (0.0, 1.0)
    sizes: list[float] = (np.abs(reward_N - mean) / (std + EPSILON)).tolist()
    return sizes


def gains_of(groups: Sequence[Group], features: Sequence[str]) -> dict[str, list[float]]:
    """|A| of every scored rollout, by category, in order."""
    gains: dict[str, list[float]] = {}
    for group in groups:
        scored = [t for t in group if t.score is not None and t.score.status != "error"]
        for trajectory, size in zip(scored, absolute_advantages([value_of(t) for t in scored]), strict=True):
            gains.setdefault(category_of(trajectory.task, features), []).append(size)
    return gains


def seen_of(groups: Sequence[Group], features: Sequence[str]) -> dict[str, list[float]]:
    """By category, tasks of a step and the share of their rollouts that is correct."""
    found: dict[str, list[float]] = {}
    for trajectories in scored_of(groups).values():
        solved = sum(t.solved for t in trajectories) / len(trajectories)
        found.setdefault(category_of(trajectories[0].task, features), []).append(solved)
    return {name: [float(len(own)), sum(own) / len(own)] for name, own in sorted(found.items())}


def report_of(seen: Mapping[str, Sequence[float]], names: Sequence[str]) -> dict[str, float]:
    """Share of the step's tasks and of correct rollouts by category, from `seen_of`; too many are counted only."""
    if len(names) > MOST_IN_REPORT:
        return {"categories": float(len(names)), "categories_seen": float(len(seen))}
    total = sum(count for count, _ in seen.values())
    shares = {f"share/{name}": seen[name][0] / total if name in seen else 0.0 for name in names} if total else {}
    return shares | {f"solved/{name}": solved for name, (_, solved) in seen.items()}
