"""The best of a model's own answers to each task, where it is good enough: rejection sampling by a score.

Source: the last stage of Curr-ReFT, arXiv:2503.07065: several answers to each question, scored by a judge from 0 to
100; the best one is imitated if it has at least 85.

Differs: of equal scores the first answer is taken. Only answers that ended and could be scored count.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any

from pydantic import Field, PositiveFloat, PositiveInt

from posttrain.component import frozen
from posttrain.components.rewards import Reward
from posttrain.components.selections import Chosen, Selection
from posttrain.components.selections._sampling import fitting, sample_all
from posttrain.engines import Sampler, Sampling
from posttrain.types import Group, Task


@frozen
class Best(Selection):
    """Replaces demonstrations by the role's best answer, and leaves out tasks without a good one."""

    reward: Reward
    """Scores the answers."""
    at_least: float
    """Least score of an answer that is kept, in the reward's unit."""
    n: Annotated[int, Field(ge=1, le=256)] = 8
    """Answers to each task."""
    role: str = "policy"
    """The model that answers."""
    temperature: PositiveFloat = 1.0
    """Of the answers."""
    max_tokens: PositiveInt = 64
    """Longest answer."""
    first: PositiveInt | None = None
    """Number of tasks that are sampled, from the first; the others are left out. None takes all."""

    @property
    def roles(self) -> frozenset[str]:
        """The model that answers, and those of the reward."""
        return frozenset({self.role}) | self.reward.roles

    @property
    def writes(self) -> frozenset[str]:
        """Demonstrations."""
        return frozenset({"demonstrations"})

    async def measure(self, tasks: Sequence[Task], samplers: Mapping[str, Sampler]) -> Any:
        """For each sampled task its best answer and the score; None where no answer ended and could be scored."""
        sampling = Sampling(max_tokens=self.max_tokens, temperature=self.temperature)
        groups = await sample_all(
            tasks[: self.first], samplers, self.reward, role=self.role, n=self.n, sampling=sampling, kind=self.kind
        )
        return [_best(group, samplers[self.role]) for group in groups]

    def choose(self, tasks: Sequence[Task], measured: Any) -> Chosen:
        """The tasks whose best answer is good enough, in their order."""
        kept = [
            replace(
                task,
                demonstrations=(row["text"],),
                fields={**task.fields, "origin": [{"writer": self.role, "value": row["value"]}]},
            )
            for task, row in zip(tasks, measured, strict=False)  # further tasks were not sampled
            if row is not None and row["value"] >= self.at_least
        ]
        none = sum(row is None for row in measured)
        return Chosen(
            tasks=kept,
            summary=(
                f"{len(kept)} of {len(measured)} tasks have an answer by the role '{self.role}' with a score of "
                f"{self.at_least:g} or more among {self.n}"
                + (f"; {none} have none that ended and could be scored" if none else "")
            ),
        )


def _best(group: Group, sampler: Sampler) -> dict[str, Any] | None:
    """Text and score of the best answer that can be imitated."""
    usable = [
        t
        for t in fitting(group, sampler)
        if t is not None and t.completion and t.stop_reason != "length" and t.score and t.score.status != "error"
    ]
    if not usable:
        return None
    best = max(usable, key=lambda t: t.score.value if t.score else 0.0)
    return {"text": best.completion, "value": best.score.value if best.score else 0.0}
