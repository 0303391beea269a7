"""Selects easy or hard pairs, by the absolute difference of the rewards of their completions.

Source: the split of MPO, Gou and Nguyen 2024, arXiv:2403.19443: with r a reward model,

    easy: |r(chosen) - r(rejected)| > gamma        hard: all others

Labels are not changed, also where the reward disagrees with them: only the absolute difference counts.

Differs: the paper's gamma is not in the available text. Since reward models have different scales, gamma is a quantile
of the margins here, unless a number is given. A pair whose margin equals gamma is hard. A pair that could not be scored
is neither.
"""

import asyncio
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import Field, NonNegativeFloat, model_validator
from pydantic_core import PydanticCustomError

from posttrain.component import frozen
from posttrain.components.rewards import Reward, RewardContext, scored
from posttrain.components.selections import Chosen, Selection
from posttrain.engines import Sampler, sampler_of
from posttrain.errors import AlarmStop, UserError
from posttrain.types import Group, Segment, Task, Trajectory

Share = Annotated[float, Field(ge=0.0, le=1.0)]


@frozen
class ByMargin(Selection):
    """Keeps the easy or the hard pairs, and the tasks that have any of them."""

    reward: Reward
    """Scores both completions of each pair."""
    keep: Literal["easy", "hard"] = "easy"
    """``easy`` keeps pairs whose margin is above gamma, ``hard`` the others."""
    quantile: Share | None = 0.5
    """gamma as a quantile of the margins, in [0, 1]."""
    margin: NonNegativeFloat | None = None
    """gamma as a number, in units of reward; set quantile to null with it."""

    @model_validator(mode="after")
    def check_bound(self) -> Self:
        """Refuse two values of gamma, and none."""
        if (self.quantile is None) == (self.margin is None):
            raise PydanticCustomError("bound", "quantile and margin both set gamma: give one, and null for the other")
        return self

    @property
    def roles(self) -> frozenset[str]:
        """Those of the reward."""
        return self.reward.roles

    async def measure(self, tasks: Sequence[Task], samplers: Mapping[str, Sampler]) -> Any:
        """For each task, the margin of each of its pairs; None for a pair that could not be scored."""
        reader = sampler_of("policy", samplers, "the by_margin selection takes the tokenizer of")
        context = RewardContext(samplers=samplers)

        async def margin(task: Task, texts: tuple[str, str]) -> float | None:
            pair = Group(
                key=task.key, trajectories=tuple(_written(task, text, i, reader) for i, text in enumerate(texts))
            )
            scores = [t.score for t in await scored(pair, self.reward, context)]
            values = [s.value if s is not None and s.status != "error" else math.nan for s in scores]
            gap = abs(values[0] - values[1])
            return gap if math.isfinite(gap) else None

        margins = [margin(task, (pair.chosen, pair.rejected)) for task in tasks for pair in task.preferences]
        if not margins:
            raise UserError(
                f"none of the {len(tasks)} tasks has a pair to take the margin of; give columns named chosen and "
                "rejected, or leave the selection out"
            )
        found = iter(await asyncio.gather(*margins))
        return [[next(found) for _ in task.preferences] for task in tasks]

    def choose(self, tasks: Sequence[Task], measured: Any) -> Chosen:
        """The tasks with the pairs that are kept. Raises `AlarmStop` if no pair could be scored."""
        known = [margin for margins in measured for margin in margins if margin is not None]
        if not known:
            raise AlarmStop(
                f"no pair of the {len(tasks)} tasks could be scored by '{self.reward.kind}', so there are no margins; "
                "fix the reward, or the role that it uses, and resume"
            )
        gamma = self.margin if self.quantile is None else float(np.quantile(known, self.quantile))
        assert gamma is not None, "checked when it was made"
        chosen = []
        for task, margins in zip(tasks, measured, strict=True):
            kept = tuple(
                pair
                for pair, margin in zip(task.preferences, margins, strict=True)
                if margin is not None and (margin > gamma) == (self.keep == "easy")
            )
            if kept:
                chosen.append(replace(task, preferences=kept))
        return Chosen(tasks=chosen, summary=self._summary(chosen, known, sum(map(len, measured)), gamma))

    def _summary(self, chosen: Sequence[Task], known: Sequence[float], count: int, gamma: float) -> str:
        """Number of pairs that are kept, of pairs in all, and of pairs that could not be scored."""
        pairs = sum(len(task.preferences) for task in chosen)
        above = "above" if self.keep == "easy" else "of at most"
        summary = f"{pairs} of {count} pairs are {self.keep}, with a margin {above} {gamma:.4g} by '{self.reward.kind}'"
        failed = count - len(known)
        return summary + (f"; {failed} could not be scored and are left out" if failed else "")


def _written(task: Task, text: str, sample: int, reader: Sampler) -> Trajectory:
    """A completion of the data as a trajectory, for the reward."""
    prompt = reader.prompt(task)
    ids = reader.encode_completion(task.prompt, text)
    segment = Segment(actor="demonstration", token_ids=ids, trained=True, text=text)
    return Trajectory(task=task, segments=(prompt, segment), stop_reason="stop", sample=sample)
