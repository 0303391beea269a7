"""Pairings: rules that make preference pairs of the scored rollouts of one task.

Contract: deterministic, with draws from the task's sampler alone; the texts of a pair differ and neither is empty; the
fields of each pair have the ``rule`` that made it, the ``origin`` of both texts and the numbers that the rule `gives`;
a task without a pair has a reason, a phrase that is the same for every task that it applies to; a rollout that could
not be scored is in no pair.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from posttrain.component import Component
from posttrain.components.rollouts import Scorer
from posttrain.engines import Sampler
from posttrain.types import Preference, Task, Trajectory

NOTHING_SCORED: Final = "no rollout could be scored"
EQUAL: Final = "all rollouts score the same"
"""Reasons that several rules have."""


@dataclass(frozen=True, kw_only=True)
class Rollouts:
    """The rollouts of one task, and what a rule may use to make pairs of them."""

    task: Task
    trajectories: tuple[Trajectory, ...]
    """Scored, in the order of sampling."""
    sampler: Sampler
    """The model that wrote them, bound to the task."""
    scorer: Scorer
    """Scores a group of further rollouts."""
    writers: tuple[str, ...] = ()
    """Who wrote each; empty where the policy wrote all."""
    samplers: Mapping[str, Sampler] = field(default_factory=dict)
    """The models of the rule's own roles, and the others of the recipe, by role."""

    def origin(self, trajectory: Trajectory) -> dict[str, Any]:
        """Where a rollout is from, as JSON."""
        place = next(i for i, other in enumerate(self.trajectories) if other is trajectory)
        value = trajectory.score.value if trajectory.score is not None and trajectory.score.status != "error" else None
        writer = self.writers[place] if self.writers else "policy"
        return {"writer": writer, "sample": trajectory.sample, "value": value}

    @property
    def usable(self) -> list[Trajectory]:
        """Rollouts with a score and a text that ended, each text once."""
        found: dict[str, Trajectory] = {}
        for trajectory in self.trajectories:
            scored = trajectory.score is not None and trajectory.score.status != "error"
            if scored and trajectory.stop_reason != "length" and trajectory.completion.strip():
                found.setdefault(trajectory.completion, trajectory)
        return list(found.values())


@dataclass(frozen=True, kw_only=True)
class Paired:
    """Pairs of one task, or the reason why there is none."""

    pairs: tuple[Preference, ...] = ()
    reason: str = ""
    rollouts: int = 0
    """Further rollouts that were sampled to make them."""


class Pairing(Component):
    """Makes pairs of the rollouts of a task."""

    @property
    def roles(self) -> frozenset[str]:
        """Roles besides the writers whose models it uses."""
        return frozenset()

    @property
    def gives(self) -> frozenset[str]:
        """Names of the numbers that every pair has in its fields, for losses that read them."""
        return frozenset()

    @property
    def reads(self) -> Sequence[str]:
        """Columns that every task must have."""
        return ()

    @property
    def needs_rollouts(self) -> bool:
        """Whether it reads the rollouts of a task; if not, none are sampled."""
        return True

    async def pair(self, rollouts: Rollouts) -> Paired:
        """The pairs of one task."""
        raise NotImplementedError


def value_of(trajectory: Trajectory) -> float:
    """The score of a usable rollout."""
    assert trajectory.score is not None and trajectory.score.status != "error", "usable rollouts are scored"
    return trajectory.score.value
