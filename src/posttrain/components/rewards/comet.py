"""The quality of a translation by a COMET model, which is a role of the recipe.

Source: COMET, arXiv:2009.09025, and COMET-Kiwi, arXiv:2209.06243, which is the semantic score of MT-R1-Zero,
arXiv:2504.10160. Models with and without references are read as they are published, from a folder (`Model.source`);
nothing is fetched.

    posttrain run mt_r1_zero reward.measure=mix reward.semantic=comet models.comet.source=FOLDER tasks=mine.jsonl
    # columns: prompt, source, answer (the reference)
    posttrain score comet answers.jsonl --model FOLDER

A copy of the source, which models without a reference score high, has 0, as in `semantic`. The value is cut to [0, 1].
Of a text the first 10,000 characters are read, and as many tokens as the encoder has places; ``reward/cut`` is the
share of translations of which a part was not read.
"""

import asyncio
import math
from collections.abc import Sequence
from typing import Annotated

import numpy as np
from pydantic import Field

from posttrain.component import frozen
from posttrain.components.rewards import Reward, RewardContext, counted, failure
from posttrain.engines import Sampler
from posttrain.grading.similarity import copies, source_of
from posttrain.signals import Signal
from posttrain.types import Group, Score, Trajectory

LONGEST = 10_000
Share = Annotated[float, Field(gt=0.0, le=1.0)]


@frozen
class Comet(Reward):
    """Scores translations by a COMET model."""

    role: str = "comet"
    """Role of the model."""
    copy_at: Share | None = 0.9
    """Share of characters in common with the source from which a text is a copy; null lets copies pass."""
    correct_at: Share = 0.9
    """Smallest score that counts as correct."""

    @property
    def roles(self) -> frozenset[str]:
        """The COMET model."""
        return frozenset({self.role})

    @property
    def needs(self) -> frozenset[Signal]:
        """Its score, and the share of the texts that it read."""
        return frozenset({Signal("scores", of=self.role)})

    async def score(self, group: Group, context: RewardContext) -> Sequence[Score]:
        """Score each translation alone; the model reads those of a group in one pass."""
        sampler = context.sampler(self.role, self.kind)
        return await asyncio.gather(*(self._score(trajectory, sampler) for trajectory in group))

    async def _score(self, trajectory: Trajectory, sampler: Sampler) -> Score:
        task, text = trajectory.task, trajectory.completion.strip()
        source, reference = source_of(task).strip(), (task.answer or "").strip()
        if not source:
            return failure(f"task '{task.key}' has no source to compare with")
        if not text:
            return Score(value=0.0, status="wrong", explanation="nothing was written")
        if self.copy_at is not None and copies(text, source, reference, self.copy_at):
            return Score(value=0.0, status="wrong", answer=text[:200], explanation="a copy of the source")
        texts = [text, source, *([reference] if reference else [])]
        found = await sampler.scores(np.concatenate([sampler.encode(one[:LONGEST]) for one in texts]))
        if len(found) != 2:
            return failure(f"the model in the role '{self.role}' is no COMET model: it gives {len(found)} numbers")
        value, read = map(float, found)
        if not math.isfinite(value):
            why = "it compares with a reference, which the task lacks" if not reference else "not a finite number"
            return failure(f"task '{task.key}': the role '{self.role}' gives {value}: {why}")
        value = min(max(value, 0.0), 1.0)
        cut = read < 1.0 or any(len(one) > LONGEST for one in texts)
        return Score(
            value=value,
            status="ok" if value >= self.correct_at else "wrong",
            answer=text[:200],
            explanation=f"COMET {value:.4f}{', of a part of the texts' * cut}",
            parts={"cut": counted(cut)},
        )
