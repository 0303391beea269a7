"""Graders, and shapers of other graders' scores.

Contract: one `Score` for each trajectory, in order; deterministic; a grader that fails gives status ``error`` with an
explanation, never a number that looks like a judgement (its value is NaN: see `failure`).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from posttrain.component import Component
from posttrain.engines import Sampler, sampler_of
from posttrain.signals import Signal
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

    def sampler(self, role: str, reward: str) -> Sampler:
        """The model that a reward asks, by its kind. Raises `UserError` for a role that no model plays."""
        return sampler_of(role, self.samplers, f"the {reward} reward asks")


class Reward(Component):
    """Judges the trajectories of a group."""

    @property
    def roles(self) -> frozenset[str]:
        """Roles whose models it asks; the recipe must have them."""
        return frozenset()

    @property
    def needs(self) -> frozenset[Signal]:
        """Signals that it asks samplers for: log-probabilities or scores of the models in other roles."""
        return frozenset()

    @property
    def runs(self) -> str:
        """Language of the programs that it finds in completions and runs; empty for one that judges what they say."""
        return ""

    async def score(self, group: Group, context: RewardContext) -> Sequence[Score]:
        """Judge every trajectory of the group."""
        raise NotImplementedError

    def prepare(self) -> None:
        """Load what judging needs. Raises `UserError` before anything is sampled, where that cannot be had."""

    @property
    def fingerprint(self) -> Mapping[str, str]:
        """SHA-256 of each of the user's own files that judge, by path, for the record of a run."""
        return {}

    @classmethod
    def from_text(cls, text: str) -> Mapping[str, Any]:
        """``file.py:name`` and ``package.module:name`` are functions; anything else is a kind."""
        return {"kind": "function", "path": text} if ":" in text else {"kind": text}


async def judged(group: Group, reward: Reward, context: RewardContext) -> Group:
    """The group with a score on every trajectory; attempts that broke off are errors, which the reward never sees."""
    sound = [i for i, t in enumerate(group) if not t.failure]
    asked = replace(group, trajectories=tuple(group.trajectories[i] for i in sound))
    scores = dict(zip(sound, await reward.score(asked, context) if sound else (), strict=True))
    scored = (t.scored(scores[i] if i in scores else failure(t.failure)) for i, t in enumerate(group))
    return replace(group, trajectories=tuple(scored))


def failure(explanation: str, *, answer: str | None = None, parts: Mapping[str, Score] | None = None) -> Score:
    """The score of a trajectory that could not be judged. Its value is NaN, so that no sum passes for a judgement."""
    return Score(value=math.nan, status="error", answer=answer, explanation=explanation, parts=parts or {})
