"""The score of a reward model for the user of a task, inferred from a few pairs.

Source: VPL, arXiv:2408.10075, and its releases (WEIRDLabUW/vpl_llm at fdfdfa7, WEIRDLabUW/vpl at 531bb97). The pairs
are the field ``context`` of a task (`tasks/personal`); without any, the user is the prior. The stage `personal_model`
trains the model.

Scores of users differ in scale, so that a user with larger margins decides what a policy learns from several. With
`bounded` a score is the mean probability that the user prefers the completion to each text of the user's own pairs,

    r(y) = mean_j sigmoid(s(y) - s(y_j))    in (0, 1)

as in the variant for control that compares with some 1,000 states; a user without pairs is compared with nothing then,
which is an error.

The model reads the sampled tokens, so it must share the policy's vocabulary; of a task with a field ``request``, what a
model may read in place of a prompt that names the user, it reads that and the text of the completion.
"""

import asyncio
import math
from collections.abc import Sequence

import numpy as np

from posttrain.component import frozen
from posttrain.components.rewards import Reward, RewardContext, failure
from posttrain.datasets.users import REQUEST, context_of, shown_as
from posttrain.engines import Sampler
from posttrain.errors import TaskFault, UserError
from posttrain.signals import Signal
from posttrain.types import Group, IntArray, Message, Score, Task


@frozen
class PersonalModel(Reward):
    """Scores by a reward model that infers what the user likes."""

    role: str = "reward"
    """Role of the reward model; it needs ``head: reward`` and ``latent``."""
    bounded: bool = False
    """Whether a score is the mean probability to be preferred to the texts of the user's pairs."""
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

    def check(self, tasks: Sequence[Task]) -> None:
        """Raise `UserError` for a task without a context, or an empty one where scores are bounded."""
        for task in tasks:
            if not context_of(task) and self.bounded:
                raise TaskFault(
                    task.key,
                    f"task {task.key}: its user has no pairs, with whose texts a bounded score compares; give the user "
                    "some, or leave reward.bounded out",
                )

    async def score(self, group: Group, context: RewardContext) -> Sequence[Score]:
        """Score every trajectory by its own tokens, after the pairs of its user."""
        sampler = context.sampler(self.role, self.kind)
        if not len(group):
            return []
        try:
            pairs = context_of(group.trajectories[0].task)
        except UserError as error:
            return [failure(str(error))] * len(group)
        texts = [_ids(sampler, prompt, text) for prompt, *both in pairs for text in both]
        read = [shown_as(t.task).prompt if REQUEST in t.task.fields else None for t in group]
        own = [
            t.token_ids if prompt is None else _ids(sampler, prompt, t.completion)
            for t, prompt in zip(group, read, strict=True)
        ]
        outputs = await self._outputs(sampler, texts, own)
        others = await self._outputs(sampler, texts, texts) if self.bounded else []
        return [self._score(output, others) for output in outputs]

    async def _outputs(self, sampler: Sampler, before: Sequence[IntArray], scored: Sequence[IntArray]) -> list[float]:
        """The score of each text; NaN for one that exceeds the context with the pairs."""

        async def one(ids: IntArray) -> float:
            whole = np.concatenate([*before, ids])
            return await sampler.score(whole) if len(whole) <= sampler.context else math.nan

        return await asyncio.gather(*(one(ids) for ids in scored))

    def _score(self, output: float, others: Sequence[float]) -> Score:
        value = output
        if self.bounded:
            difference = np.clip(output - np.array(others), -60.0, 60.0)
            value = float((1.0 / (1.0 + np.exp(-difference))).mean()) if len(difference) else math.nan
        if not math.isfinite(value):
            return failure(
                f"the role '{self.role}' gives {value}: the pairs of the user and the completion exceed its context, "
                "or the user has no pairs to compare with"
            )
        return Score(
            value=value,
            status="ok" if value >= self.correct_at else "wrong",
            explanation=f"the role '{self.role}' gives {output:.4g} for this user",
        )


def _ids(sampler: Sampler, prompt: str | Sequence[Message], text: str) -> IntArray:
    return np.concatenate([sampler.encode(prompt), sampler.encode_completion(prompt, text)]).astype(np.int64)
