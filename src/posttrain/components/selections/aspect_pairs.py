"""Pairs of several candidates that judges score in aspects: all pairs of a task whose totals differ.

Source: VisionPrefer, arXiv:2404.15100, of which the abstract was read: a multimodal model scores pictures of one prompt
in four aspects (prompt following, aesthetics, fidelity, harmlessness). Scale, aggregation, margin and veto are of this
package. The candidates are the texts in the field `field`. With a_ik the score of candidate i in aspect k,

    s_i = mean over the aspects that i has, by weight       i is preferred to j where s_i - s_j > margin

A candidate without any score, and one that is equal to another, is left out. A score outside the scale is an error, and
never clipped. A candidate with a score below the floor of its aspect is never preferred (a veto); against it no margin
is needed, an equal total suffices. Judges see all candidates of a task together, in an order that is drawn by task, so
that a preference for a place favours none of them.

A pair has the fields ``margin`` (s_i - s_j) and ``aspects``, by name the scores of both. Judges are rewards: functions,
or models of any role.

Differs: unverified but for the aspects and that candidates are compared by prompt. The reasons that the judge writes
are not kept.
"""

import asyncio
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import permutations
from random import Random
from typing import Annotated, Any, Self

import numpy as np
from pydantic import Field, NonNegativeFloat, PositiveInt, model_validator
from pydantic_core import PydanticCustomError

from posttrain.component import frozen, nearest
from posttrain.components.rewards import Reward, RewardContext
from posttrain.components.selections import Chosen, Selection
from posttrain.engines import Sampler
from posttrain.errors import AlarmStop, UserError
from posttrain.types import Group, Preference, Segment, Task, Trajectory

Scores = Mapping[str, float]


@frozen
class AspectPairs(Selection):
    """Replaces the pairs of tasks by those of rated candidates."""

    aspects: Annotated[Mapping[str, Reward], Field(min_length=1)]
    """The judge of each aspect by name."""
    weights: Mapping[str, NonNegativeFloat] = Field(default_factory=dict)
    """Weight of an aspect; 1 where it is not named."""
    scale: tuple[float, float] = (1.0, 5.0)
    """Lowest and highest score."""
    margin: NonNegativeFloat = 0.0
    """Difference of totals that is still a tie."""
    floors: Mapping[str, float] = Field(default_factory=dict)
    """Score of an aspect below which a candidate is never preferred."""
    shuffled: bool = True
    """Whether judges see candidates in a drawn order."""
    field: Annotated[str, Field(min_length=1)] = "texts"
    """Field of a task with its candidates, a list of texts."""
    first: PositiveInt | None = None
    """Number of tasks that are used, from the first; None takes all."""

    @model_validator(mode="after")
    def check_names(self) -> Self:
        """Refuse weights and floors of what is no aspect, weights that are all 0, and a scale of no width."""
        for name in (*self.weights, *self.floors):
            if name not in self.aspects:
                raise PydanticCustomError(
                    "aspect", "there is no aspect '{name}'; {hint}", {"name": name, "hint": nearest(name, self.aspects)}
                )
        if not any(self.weights.get(name, 1.0) for name in self.aspects):
            raise PydanticCustomError("weights", "all weights are 0, so that all are ties; give one above 0")
        if not self.scale[0] < self.scale[1]:
            raise PydanticCustomError("scale", "a scale goes from a lower number to a higher one")
        return self

    @property
    def roles(self) -> frozenset[str]:
        """Those of the judges."""
        return frozenset().union(*(judge.roles for judge in self.aspects.values()))

    @property
    def writes(self) -> frozenset[str]:
        """Pairs."""
        return frozenset({"preferences"})

    @property
    def gives(self) -> frozenset[str]:
        """The margin."""
        return frozenset({"margin"})

    async def measure(self, tasks: Sequence[Task], samplers: Mapping[str, Sampler]) -> Any:
        """For each used task, the scores of its candidates by aspect, without those that failed."""
        return list(await asyncio.gather(*(self._rated(task, samplers) for task in tasks[: self.first])))

    async def _rated(self, task: Task, samplers: Mapping[str, Sampler]) -> list[dict[str, float]]:
        texts = self._texts(task)
        order = list(range(len(texts)))
        if self.shuffled:
            Random(f"aspect_pairs:{task.key}").shuffle(order)
        reader = samplers.get("policy")
        shown = Group(key=task.key, trajectories=tuple(_written(task, texts[i], i, reader) for i in order))
        found: list[dict[str, float]] = [{} for _ in texts]
        for name, judge in self.aspects.items() if texts else ():
            scores = await judge.score(shown, RewardContext(samplers=samplers))
            for place, score in zip(order, scores, strict=True):
                if score.status == "error" or not math.isfinite(score.value):
                    continue
                if not self.scale[0] <= score.value <= self.scale[1]:
                    raise UserError(
                        f"task {task.key}: the judge of '{name}' gives {score.value:g}, outside the scale from "
                        f"{self.scale[0]:g} to {self.scale[1]:g}; correct the judge, or selection.scale"
                    )
                found[place][name] = float(score.value)
        return found

    def choose(self, tasks: Sequence[Task], measured: Any) -> Chosen:
        """The tasks with their pairs. Raises `AlarmStop` where there is none at all."""
        kept, ties, vetoed = [], 0, 0
        for task, scores in zip(tasks, measured, strict=False):  # further tasks were not rated
            texts = self._texts(task)
            pairs = self._pairs(texts, scores)
            vetoed += sum(self._vetoed(own) for own in scores)
            ties += math.comb(len(texts), 2) - len(pairs)
            if pairs:
                origin = [{"writer": "data"}] * 2 * len(pairs)
                kept.append(replace(task, preferences=pairs, fields={**task.fields, "origin": origin}))
        if not kept:
            raise AlarmStop(f"no pair of the {len(measured)} tasks differs; lower the margin, or see the judges")
        number = sum(len(task.preferences) for task in kept)
        summary = f"{number} pairs of {len(kept)} of {len(measured)} tasks; {ties} ties or pairs without a score"
        return Chosen(tasks=kept, summary=summary + (f"; {vetoed} candidates below a floor" if self.floors else ""))

    def _pairs(self, texts: Sequence[str], scores: Sequence[Scores]) -> tuple[Preference, ...]:
        """All pairs of a task, in the order of the candidates."""
        totals = [self._total(own) for own in scores]
        pairs = []
        for i, j in permutations(range(len(texts)), 2):
            one, other = totals[i], totals[j]
            if one is None or other is None or texts[i] == texts[j] or self._vetoed(scores[i]):
                continue
            if one - other > self.margin or (self._vetoed(scores[j]) and one >= other):
                aspects = {name: (scores[i].get(name), scores[j].get(name)) for name in self.aspects}
                fields = {"margin": one - other}
                pairs.append(Preference(chosen=texts[i], rejected=texts[j], aspects=aspects, fields=fields))
        return tuple(pairs)

    def _total(self, scores: Scores) -> float | None:
        """The weighted mean of the aspects that there are; None without any."""
        weights = {name: self.weights.get(name, 1.0) for name in scores}
        if not any(weights.values()):
            return None
        return float(np.average([scores[name] for name in weights], weights=list(weights.values())))

    def _vetoed(self, scores: Scores) -> bool:
        return any(scores.get(name, math.inf) < floor for name, floor in self.floors.items())

    def _texts(self, task: Task) -> list[str]:
        """The candidates. Raises `UserError` for a field that is no list of texts."""
        found: Any = task.fields.get(self.field)
        if not isinstance(found, list | tuple) or not all(isinstance(text, str) for text in found):
            raise UserError(
                f"task {task.key} has no list of texts in the field '{self.field}'; "
                f"{nearest(self.field, task.fields)}; give each row a column with its candidates"
            )
        return list(found)


def _written(task: Task, text: str, sample: int, reader: Sampler | None) -> Trajectory:
    """A candidate as a trajectory, in the policy's tokens where it has tokens of text."""
    prompt: tuple[Segment, ...] = ()
    ids = np.zeros(1, np.int64)
    if reader is not None:
        with suppress(UserError):  # a flow, whose candidates are points
            ids = reader.encode_completion(task.prompt, text)
            prompt = (reader.prompt(task),)
    segment = Segment(actor="demonstration", token_ids=ids, trained=True, text=text)
    return Trajectory(task=task, segments=(*prompt, segment), stop_reason="stop", sample=sample)
