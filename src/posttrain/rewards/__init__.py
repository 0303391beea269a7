"""Graders, and shapers of other graders' scores.

Contract: one `Score` for each trajectory, in order; deterministic; a grader that fails gives status ``error`` with an
explanation, never a number that looks like a judgement.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from posttrain.component import Component
from posttrain.engines import Sampler
from posttrain.types import Group, Score


@dataclass(frozen=True, kw_only=True)
class RewardContext:
    """What a reward may use beside the group that it judges."""

    samplers: Mapping[str, Sampler] = field(default_factory=dict)
    """The recipe's models by role, for judges and likelihood rewards."""
    progress: float = 0.0
    """Share of the stage that is done, in [0, 1]."""
    step: int = 0
    state: dict[str, Any] = field(default_factory=dict)
    """The reward's own memory: JSON, saved in every checkpoint."""


class Reward(Component):
    """Judges the trajectories of a group."""

    async def score(self, group: Group, context: RewardContext) -> Sequence[Score]:
        """Judge every trajectory of the group."""
        raise NotImplementedError

    @classmethod
    def from_text(cls, text: str) -> Mapping[str, Any]:
        """``file.py:name`` and ``package.module:name`` are functions; anything else is a kind."""
        return {"kind": "function", "path": text} if ":" in text else {"kind": text}
