"""Rejective fine-tuning: a model's own right answers to tasks that it does not always answer rightly.

Source: SPCT (DeepSeek-GRM), arXiv:2504.02495, equation 10, from technical notes. Three answers are sampled for each
task. Wrong ones are rejected; a task all of whose answers are right is too easy and is left out. Once for each task an
answer is also sampled with the solution in the prompt; where it is right, it is learned from as well, below the prompt
without the solution. It is for a cold start only, since such answers reason less.

Differs: a task none of whose answers could be scored is left out, and counted. The hinted answer does not count for
whether a task is too easy.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any

from pydantic import Field, PositiveFloat, PositiveInt, field_validator

from posttrain.component import frozen
from posttrain.components.rewards import Reward
from posttrain.components.selections import Chosen, Selection
from posttrain.components.selections._sampling import fitting, sample_all
from posttrain.datasets.templates import check_places, prompt_from
from posttrain.engines import Sampler, Sampling
from posttrain.types import Group, Task

HINT = "{question}\nThe best one is {answer}.\n"


@frozen
class Rejected(Selection):
    """Replaces demonstrations by the role's own right answers, and leaves out what is too easy or too hard."""

    reward: Reward
    """Scores the answers; status ``ok`` is right."""
    n: Annotated[int, Field(ge=1, le=256)] = 3
    """Answers to each task."""
    hint: str | None = HINT
    """The prompt with the solution, of which one more answer is sampled. Placeholders: question, answer. None samples
    none."""
    role: str = "policy"
    """The model that answers."""
    temperature: PositiveFloat = 1.0
    """Of the answers."""
    max_tokens: PositiveInt = 64
    """Longest answer."""
    first: PositiveInt | None = None
    """Number of tasks that are sampled, from the first; the others are left out. None takes all."""

    @field_validator("hint")
    @classmethod
    def check_hint(cls, hint: str | None) -> str | None:
        """Refuse a misspelled placeholder."""
        return None if hint is None else check_places(hint, ("question", "answer"))

    @property
    def roles(self) -> frozenset[str]:
        """The model that answers, and those of the reward."""
        return frozenset({self.role}) | self.reward.roles

    @property
    def writes(self) -> frozenset[str]:
        """Demonstrations."""
        return frozenset({"demonstrations"})

    async def measure(self, tasks: Sequence[Task], samplers: Mapping[str, Sampler]) -> Any:
        """For each task its different right answers, how many were right and scored, and the hinted answer if right."""
        tasks = tasks[: self.first]
        plain = await self._sampled(tasks, samplers, self.n)
        hinted: Sequence[Group | None] = [None] * len(tasks)
        if self.hint is not None:
            asked = [replace(t, prompt=prompt_from(t, self.hint, {"answer": t.answer or ""})) for t in tasks]
            hinted = await self._sampled(asked, samplers, 1)
        sampler = samplers[self.role]
        return [
            {
                "right": _right(group, sampler),
                "solved": sum(t.solved for t in group),
                "scored": sum(t.score is not None and t.score.status != "error" for t in group),
                "hinted": [] if other is None else _right(other, sampler),
            }
            for group, other in zip(plain, hinted, strict=True)
        ]

    async def _sampled(self, tasks: Sequence[Task], samplers: Mapping[str, Sampler], n: int) -> list[Group]:
        """Scored answers to each task."""
        sampling = Sampling(max_tokens=self.max_tokens, temperature=self.temperature)
        return await sample_all(tasks, samplers, self.reward, role=self.role, n=n, sampling=sampling, kind=self.kind)

    def choose(self, tasks: Sequence[Task], measured: Any) -> Chosen:
        """The tasks with right answers that are not too easy, in their order."""
        kept, easy, hard, hints = [], 0, 0, 0
        for task, row in zip(tasks, measured, strict=False):  # further tasks were not sampled
            texts = [*row["right"], *row["hinted"]]
            if row["solved"] == row["scored"] > 0:
                easy += 1
            elif not texts:
                hard += 1
            else:
                hints += len(row["hinted"])
                origin = [{"writer": self.role, "hinted": i >= len(row["right"])} for i in range(len(texts))]
                kept.append(replace(task, demonstrations=tuple(texts), fields={**task.fields, "origin": origin}))
        failed = sum(not row["scored"] for row in measured)
        return Chosen(
            tasks=kept,
            summary=(
                f"{len(kept)} of {len(measured)} tasks give right answers by the role '{self.role}', {hints} of them "
                f"with the solution in the prompt; {easy} are too easy, all of {self.n} right, {hard} have none"
                + (f"; {failed} could not be scored" if failed else "")
            ),
        )


def _right(group: Group, sampler: Sampler) -> list[str]:
    """The different right answers that fit into the context below the plain prompt."""
    texts = [t.completion for t in fitting(group, sampler) if t is not None and t.solved and t.completion]
    return list(dict.fromkeys(texts))
