"""A weighted sum of rewards, with every part recorded.

One part decides whether a completion is right; the others shade the value. A part that fails makes the whole an
``error``: a sum without it would look like a judgement.
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
    """The rewards, by a name of their own."""
    weights: Mapping[str, float] = Field(default_factory=dict)
    """Weight of each part; 1 where none is given, and 0 records a part without adding it."""
    correct: str | None = None
    """The part whose status and answer the sum takes; None is the first."""

    @model_validator(mode="after")
    def check_names(self) -> Self:
        """Refuse weights of parts that are not there."""
        for name in (*self.weights, *([self.correct] if self.correct is not None else [])):
            if name not in self.parts:
                context = {"name": name, "hint": nearest(name, self.parts)}
                raise PydanticCustomError("part", "the sum has no part '{name}'; {hint}", context)
        return self

    def prepare(self) -> None:
        """Prepare every part."""
        for part in self.parts.values():
            part.prepare()

    @property
    def roles(self) -> frozenset[str]:
        """Those of every part."""
        return frozenset().union(*(part.roles for part in self.parts.values()))

    @property
    def runs(self) -> str:
        """What the part that decides runs, or the first of the others that runs anything."""
        decides = next(iter(self.parts)) if self.correct is None else self.correct
        return next((part.runs for part in (self.parts[decides], *self.parts.values()) if part.runs), "")

    @property
    def fingerprint(self) -> Mapping[str, str]:
        """The files of every part."""
        return {file: digest for part in self.parts.values() for file, digest in part.fingerprint.items()}

    async def score(self, group: Group, context: RewardContext) -> Sequence[Score]:
        """Let every part judge the group, each with a memory of its own, and add."""
        own = {name: replace(context, state=context.state.setdefault(name, {})) for name in self.parts}
        judged = await asyncio.gather(*(part.score(group, own[name]) for name, part in self.parts.items()))
        return [self._add(dict(zip(self.parts, scores, strict=True))) for scores in zip(*judged, strict=True)]

    def _add(self, parts: Mapping[str, Score]) -> Score:
        correct = parts[next(iter(parts)) if self.correct is None else self.correct]
        failed = [f"part '{name}' failed: {s.explanation}" for name, s in parts.items() if s.status == "error"]
        if failed:
            return failure("; ".join(failed), answer=correct.answer, parts=parts)
        value = sum(self.weights.get(name, 1.0) * score.value for name, score in parts.items())
        terms = " + ".join(f"{self.weights.get(name, 1.0):g} * {s.value:g} ({name})" for name, s in parts.items())
        if not math.isfinite(value):
            return failure(f"{terms} is {value}", answer=correct.answer, parts=parts)
        return Score(value=value, status=correct.status, answer=correct.answer, explanation=terms, parts=parts)
