r"""Two agents with private contexts and the same weights talk until both state the same answer.

Source: Optima, arXiv:2410.08115, and its release (thunlp/Optima at 4017740). Alice and Bob write one message each,
alternately. Each reads its own context, the problem, and the messages of the other with the other's name before them.
The conversation ends when the same answer is stated in two turns, or after `max_turns` turns, without an answer then.

A conversation gives two rollouts, one as each agent saw it; both learn, from their own turns. A task has its two
private contexts in the field `column`, a list of two texts. In the first round varied formats are requested: a
conversation draws one of `formats`.

Differs: a conversation whose context is full ends without an answer.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

from pydantic import Field, PositiveInt, field_validator

from posttrain.component import frozen
from posttrain.components.rollouts import Rollout
from posttrain.components.rollouts._exchange import AGENTS, HEARD, VIEW, Form, Talk
from posttrain.components.rollouts._segments import sampler_of
from posttrain.datasets.templates import check_places
from posttrain.engines import Sampler, Sampling
from posttrain.types import Group, Task


@frozen
class Dialogue(Rollout):
    """Samples `n` conversations."""

    n: PositiveInt = 10
    """Conversations per task."""
    max_turns: Annotated[int, Field(ge=2, le=1000)] = 10
    """Most turns, of both together."""
    agents: tuple[str, str] = AGENTS
    """Names of the two."""
    view: str = VIEW
    """What an agent reads first. Placeholders: agent, other, context, question, form."""
    heard: str = HEARD
    """A message as the other reads it. Placeholders: speaker, text."""
    answer: Annotated[str, Field(min_length=1)] = "<A>(.*?)</A>"
    """Regular expression of a stated answer, with one group."""
    column: Annotated[str, Field(min_length=1)] = "contexts"
    """Field of a task with the two private contexts; without it, both read the problem alone."""
    formats: tuple[str, ...] = ()
    """Requests for a format, of which each conversation draws one; empty has none."""
    rollouts: Literal["both", "first"] = "both"
    """Whether a conversation gives a rollout of each agent, or that of the first alone, as held-out ones do."""
    sampling: Sampling = Sampling()
    """How each turn is sampled."""
    role: str = "policy"
    """The model of both agents."""

    @field_validator("view", "heard")
    @classmethod
    def check_view(cls, template: str) -> str:
        """Refuse a misspelled placeholder."""
        return check_places(template, ("agent", "other", "context", "question", "form", "speaker", "text"))

    @property
    def group_size(self) -> int | None:
        """None, as an agent that does not write gives no rollout."""
        return None

    @property
    def temperature(self) -> float:
        """Sampling temperature; log-probabilities of greedy tokens are at temperature 1."""
        return self.sampling.temperature or 1.0

    def held_out(self, n: int, sampling: Sampling) -> "Dialogue":
        """The same conversation, seen by the first agent, without a requested format."""
        return Dialogue(
            n=n,
            max_turns=self.max_turns,
            agents=self.agents,
            view=self.view,
            heard=self.heard,
            answer=self.answer,
            column=self.column,
            rollouts="first",
            sampling=sampling,
            role=self.role,
        )

    @property
    def form(self) -> Form:
        """How the two talk."""
        return Form(
            agents=self.agents,
            view=self.view,
            heard=self.heard,
            pattern=self.answer,
            column=self.column,
            sampling=self.sampling,
            role=self.role,
            max_turns=self.max_turns,
        )

    async def collect(self, task: Task, samplers: Mapping[str, Sampler]) -> list[Group]:
        """One group with the rollouts of all conversations."""
        sampler = sampler_of(self.role, samplers)
        talks = await asyncio.gather(*(self._talk(task, sampler.bind("exchange", i)) for i in range(self.n)))
        found = [t for number, talk in enumerate(talks) for t in talk.rollouts(number)]
        kept = [t for t in found if self.rollouts == "both" or t.sample % 2 == 0]
        return [Group(key=task.key, trajectories=tuple(kept))]

    async def _talk(self, task: Task, sampler: Sampler) -> Talk:
        return await Talk(form=self.form, task=task, sampler=sampler, hint=drawn(self.formats, sampler)).finish()


def drawn(formats: Sequence[str], sampler: Sampler) -> str:
    """One of the formats; empty where there are none."""
    return formats[int(sampler.uniform() * len(formats))] if formats else ""
