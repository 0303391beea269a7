"""Pairs that a reward tells apart, or those that it does not: split by the difference of the two completions' rewards.

Source: the split of MPO, Gou and Nguyen 2024, arXiv:2403.19443: with r a reward model,

    easy: |r(chosen) - r(rejected)| > gamma        hard: all others

Labels are kept as they are, also where the reward disagrees with them: only the size of the difference counts.

Differs: the paper's gamma was not to be had. As the scale of a reward model is its own, gamma is here a quantile of the
margins, unless a number is given. A margin that equals gamma is hard. A pair that could not be judged is neither.
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
from posttrain.components.rewards import Reward, RewardContext, judged
from posttrain.components.selections import Chosen, Selection
from posttrain.engines import Sampler, sampler_of
from posttrain.errors import AlarmStop, UserError
from posttrain.types import Group, Segment, Task, Trajectory

Share = Annotated[float, Field(ge=0.0, le=1.0)]


@frozen
class ByMargin(Selection):
    """The easy or the hard pairs; a task stays if one of its pairs does."""

    reward: Reward
    """Judges both completions of each pair."""
    keep: Literal["easy", "hard"] = "easy"
    """Pairs whose margin is above gamma, or the others."""
    quantile: Share | None = 0.5
    """gamma as a share of the margins, in [0, 1]: so many are at most gamma."""
    margin: NonNegativeFloat | None = None
    """gamma as a number, in units of reward; set quantile to null with it."""

    @model_validator(mode="after")
    def check_bound(self) -> Self:
        """One of the two says what gamma is."""
        if (self.quantile is None) == (self.margin is None):
            raise PydanticCustomError("bound", "quantile and margin both say what gamma is: set one, the other to null")
        return self

    @property
    def roles(self) -> frozenset[str]:
        """Those that the reward asks."""
        return self.reward.roles

    async def look(self, tasks: Sequence[Task], samplers: Mapping[str, Sampler]) -> Any:
        """For each task the margin of each of its pairs; None where a judgement failed."""
        reader = sampler_of("policy", samplers, "the by_margin selection reads by the tokens of")
        context = RewardContext(samplers=samplers)

        async def margin(task: Task, texts: tuple[str, str]) -> float | None:
            pair = Group(
                key=task.key, trajectories=tuple(_written(task, text, i, reader) for i, text in enumerate(texts))
            )
            scores = [t.score for t in await judged(pair, self.reward, context)]
            values = [s.value if s is not None and s.status != "error" else math.nan for s in scores]
            gap = abs(values[0] - values[1])
            return gap if math.isfinite(gap) else None

        asked = [margin(task, (pair.chosen, pair.rejected)) for task in tasks for pair in task.preferences]
        if not asked:
            raise UserError(
                f"none of the {len(tasks)} tasks has a pair to take the margin of; give columns named chosen and "
                "rejected, or leave the selection out"
            )
        found = iter(await asyncio.gather(*asked))
        return [[next(found) for _ in task.preferences] for task in tasks]

    def choose(self, tasks: Sequence[Task], seen: Any) -> Chosen:
        """The tasks with the pairs that are kept. Raises `AlarmStop` where no pair could be judged."""
        known = [margin for margins in seen for margin in margins if margin is not None]
        if not known:
            raise AlarmStop(
                f"no pair of the {len(tasks)} tasks could be judged by '{self.reward.kind}', so there is nothing to "
                "split by; mend the reward, or the role that it asks, and resume"
            )
        gamma = self.margin if self.quantile is None else float(np.quantile(known, self.quantile))
        assert gamma is not None, "checked when it was made"
        chosen = []
        for task, margins in zip(tasks, seen, strict=True):
            kept = tuple(
                pair
                for pair, margin in zip(task.preferences, margins, strict=True)
                if margin is not None and (margin > gamma) == (self.keep == "easy")
            )
            if kept:
                chosen.append(replace(task, preferences=kept))
        return Chosen(tasks=chosen, said=self._said(chosen, known, sum(map(len, seen)), gamma))

    def _said(self, chosen: Sequence[Task], known: Sequence[float], count: int, gamma: float) -> str:
        """How many pairs are left, and why."""
        pairs = sum(len(task.preferences) for task in chosen)
        above = "above" if self.keep == "easy" else "of at most"
        said = f"{pairs} of {count} pairs are {self.keep}, with a margin {above} {gamma:.4g} by '{self.reward.kind}'"
        failed = count - len(known)
        return said + (f"; {failed} could not be judged and are left out" if failed else "")


def _written(task: Task, text: str, sample: int, reader: Sampler) -> Trajectory:
    """A completion of the data's, as a reward sees it."""
    prompt = reader.prompt(task)
    ids = reader.encode_completion(task.prompt, text)
    segment = Segment(actor="demonstration", token_ids=ids, trained=True, text=text)
    return Trajectory(task=task, segments=(prompt, segment), stop_reason="stop", sample=sample)
