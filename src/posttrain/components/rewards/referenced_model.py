"""The score of a reward model that has seen the reference: how like it is the completion?

Source: POLAR, arXiv:2507.05197, and its release. The model reads prompt, reference, prompt, completion
(`posttrain.datasets.references`) in its own tokenizer, and scores at the end token. Thoughts at the start of a
completion are taken off first. The score is raw: not centred, not normalized and not clipped, since a critic or a
baseline takes its level off. An equal completion does not have to have the largest score.

The reference is the task's field ``reference``, or else its demonstration, or its answer. Tasks of the kind
`referenced` have pairs of the same form for the stage that trains the model.
"""

import asyncio
import math
from collections.abc import Sequence
from typing import Annotated

import numpy as np
from pydantic import Field

from posttrain.component import frozen
from posttrain.components.rewards import Reward, RewardContext, counted, failure
from posttrain.datasets.references import SEPARATOR, compared, without_thoughts
from posttrain.datasets.templates import question_of
from posttrain.engines import Sampler
from posttrain.signals import Signal
from posttrain.types import Group, Score, Task, Trajectory

Characters = Annotated[int, Field(ge=1, le=10_000_000)]


@frozen
class ReferencedModel(Reward):
    """Scores by a reward model that compares with a reference."""

    role: str = "reward"
    """Role of the reward model; it needs ``head: reward``."""
    line: str = "\n"
    """As in the tasks that it was trained on."""
    separator: Annotated[str, Field(min_length=1)] = SEPARATOR
    """As in the tasks that it was trained on."""
    longest_answer: Characters = 4096
    """Characters of which reference and completion keep the first."""
    longest: Characters = 16384
    """Characters in all; the prompt keeps its last ones."""
    correct_at: float = 0.0
    """Smallest score that counts as correct, for the record only."""

    @property
    def roles(self) -> frozenset[str]:
        """The reward model."""
        return frozenset({self.role})

    @property
    def needs(self) -> frozenset[Signal]:
        """The model's scores."""
        return frozenset({Signal("score", of=self.role)})

    async def score(self, group: Group, context: RewardContext) -> Sequence[Score]:
        """Score every completion beside the reference of its task."""
        sampler = context.sampler(self.role, self.kind)
        return await asyncio.gather(*(self._score(trajectory, sampler) for trajectory in group))

    async def _score(self, trajectory: Trajectory, sampler: Sampler) -> Score:
        reference = _reference(trajectory.task)
        if reference is None:
            return failure("the task has no reference, demonstration or answer to compare with")
        made = compared(
            question_of(trajectory.task),
            reference,
            (without_thoughts(trajectory.completion),),
            line=self.line,
            separator=self.separator,
            longest_answer=self.longest_answer,
            longest=self.longest,
        )
        token_ids = [*sampler.encode(made.before), *sampler.encode_completion(made.before, made.candidates[0])]
        if len(token_ids) > sampler.context:
            return failure(
                f"prompt, reference and completion have {len(token_ids)} tokens, more than the context of "
                f"{sampler.context} of the role '{self.role}'; give a smaller reward.longest"
            )
        output = await sampler.score(np.array(token_ids, np.int64))
        if not math.isfinite(output):
            return failure(f"the role '{self.role}' gives {output}")
        return Score(
            value=output,
            status="ok" if output >= self.correct_at else "wrong",
            explanation=f"the role '{self.role}' gives {output:.4g}",
            parts={"cut": counted(made.cut)},
        )


def _reference(task: Task) -> str | None:
    given = task.fields.get("reference")
    return given if isinstance(given, str) and given else next(iter(task.demonstrations), None) or task.answer or None
