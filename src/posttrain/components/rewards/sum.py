"""A weighted sum of rewards, with every part recorded.

One part decides whether a completion is correct; the others only change the value. If a part fails, the sum has status
``error``, since a sum of the other parts would not be comparable.

A part that does not apply to a rollout (a function that returns None, as TRL has it for data of several kinds) is left
out of the sum. The weights of the others are not renormalised, as in TRL. If the part that decides does not apply, the
first one that does decides. A rollout to which no part with a weight applies has status ``error``.
"""

import asyncio
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Self

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from posttrain.component import frozen, nearest
from posttrain.components.rewards import Reward, RewardContext, failure
from posttrain.types import Group, Score


@frozen
class Sum(Reward):
    """Adds rewards."""

    parts: Annotated[Mapping[str, Reward], Field(min_length=1)]
    """The rewards by name."""
    weights: Mapping[str, float] = Field(default_factory=dict)
    """Weight of each part, 1 by default; 0 records a part without adding it."""
    correct: str | None = None
    """The part that gives the sum its status and answer; None is the first."""

    @model_validator(mode="after")
    def check_names(self) -> Self:
        """Refuse weights of unknown parts."""
        for name in (*self.weights, *([self.correct] if self.correct is not None else [])):
            if name not in self.parts:
                context = {"name": name, "hint": nearest(name, self.parts)}
                raise PydanticCustomError("part", "the sum has no part '{name}'; {hint}", context)
        return self

    @property
    def wrapped(self) -> Mapping[str, Reward]:
        """The parts."""
        return self.parts

    @property
    def runs(self) -> str:
        """What the part `correct` runs, or else the first part that runs programs."""
        correct = next(iter(self.parts)) if self.correct is None else self.correct
        return next((part.runs for part in (self.parts[correct], *self.parts.values()) if part.runs), "")

    async def score(self, group: Group, context: RewardContext) -> Sequence[Score]:
        """Score the group by every part, each with a state of its own, and add the values."""
        own = {name: replace(context, state=context.state.setdefault(name, {})) for name in self.parts}
        scored = await asyncio.gather(*(part.score(group, own[name]) for name, part in self.parts.items()))
        return [self._add(dict(zip(self.parts, scores, strict=True))) for scores in zip(*scored, strict=True)]

    def _add(self, parts: Mapping[str, Score]) -> Score:
        weights = {name: self.weights.get(name, 1.0) for name in parts}
        order = [name for name in (self.correct, *parts) if name is not None and parts[name].applies]
        correct = parts[order[0]] if order else next(iter(parts.values()))
        failed = [f"part '{name}' failed: {parts[name].explanation}" for name in parts if _failed(parts[name])]
        if failed:
            return failure("; ".join(failed), answer=correct.answer, parts=parts)
        if not any(weights[name] for name in order) and (not order or any(weights.values())):
            return replace(failure("no part of the sum applies to this rollout", parts=parts), applies=False)
        applied = {name: score for name, score in parts.items() if score.applies}
        value = sum(weights[name] * score.value for name, score in applied.items())
        spans = tuple(
            (a, b, weights[n] * r, f"{n}/{p}" if p else n) for n, s in applied.items() for a, b, r, p in s.spans
        )
        terms = " + ".join(f"{weights[name]:g} * {s.value:g} ({name})" for name, s in applied.items())
        if not math.isfinite(value):
            return failure(f"{terms} is {value}", answer=correct.answer, parts=parts)
        return Score(
            value=value, status=correct.status, answer=correct.answer, explanation=terms, parts=parts, spans=spans
        )


def _failed(score: Score) -> bool:
    return score.status == "error" and score.applies
