r"""Two agents with private contexts and the same weights talk until both state the same answer.

Source: Optima, arXiv:2410.08115, and its release (thunlp/Optima at 4017740). Alice and Bob write one message each,
alternately. Each reads its own context, the problem, and the messages of the other with the other's name before them.
The conversation ends when the same answer is stated in two turns, or after `max_turns` turns, without an answer then.

A conversation gives two rollouts, one as each agent saw it; both learn, from their own turns. With a `partner` the
second agent is another model, and the conversation gives the rollout of the first. With `swapped` the two change places
in every second conversation. A task has its two
private contexts in the field `form.column`, a list of two texts. In the first round varied formats are requested: a
conversation draws one of `form.formats`.

Differs: a conversation whose context is full ends without an answer.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Literal

from pydantic import Field, PositiveInt

from posttrain.component import frozen
from posttrain.components.rollouts import Rollout
from posttrain.components.rollouts._exchange import Form, Talk, exchanged, partner_of
from posttrain.components.rollouts._segments import sampler_of
from posttrain.engines import Sampler, Sampling
from posttrain.types import Group, Task


@frozen
class Dialogue(Rollout):
    """Samples `n` conversations."""

    n: PositiveInt = 10
    """Conversations per task."""
    max_turns: Annotated[int, Field(ge=1, le=1000)] = 10
    """Most turns, of both together; in a single one no answer can be stated twice."""
    form: Form = Form()
    """What they read, and how they state an answer."""
    rollouts: Literal["both", "first"] = "both"
    """Whether a conversation gives a rollout of each agent, or that of the first alone, as held-out ones do."""
    sampling: Sampling = Sampling()
    """How each turn is sampled."""
    role: str = "policy"
    """The model of both agents, or of the first where the second has its own."""
    partner: str | None = None
    """The role of the second agent, whose turns are not learned from; None is the model of the first."""
    swapped: bool = False
    """Whether the partner is the first agent in every second conversation of a task."""

    @property
    def group_size(self) -> int | None:
        """None, as an agent that does not write gives no rollout."""
        return None

    @property
    def temperature(self) -> float:
        """Sampling temperature; log-probabilities of greedy tokens are at temperature 1."""
        return self.sampling.temperature or 1.0

    @property
    def roles(self) -> frozenset[str]:
        """The second agent's, if it has its own."""
        return frozenset() if self.partner is None else frozenset({self.partner})

    @property
    def helpers(self) -> frozenset[str]:
        """The same."""
        return self.roles

    def held_out(self, n: int, sampling: Sampling) -> "Dialogue":
        """The same conversation, seen by the first agent, without a requested format."""
        return replace(self, n=n, form=replace(self.form, formats=()), rollouts="first", sampling=sampling)

    def begun(self, task: Task, samplers: Mapping[str, Sampler], key: tuple[int | str, ...], number: int) -> Talk:
        """A conversation that has not begun."""
        sampler = sampler_of(self.role, samplers).bind(*key)
        partner, place = partner_of(self.partner, samplers, key, first=self.swapped and number % 2 == 1)
        return Talk(
            form=self.form,
            task=task,
            sampler=sampler,
            hint=drawn(self.form.formats, sampler) if key[0] == "exchange" else "",
            sampling=self.sampling,
            max_turns=self.max_turns,
            role=self.role,
            partner=partner,
            partner_place=place,
        )

    async def collect(self, task: Task, samplers: Mapping[str, Sampler]) -> list[Group]:
        """One group with the rollouts of all conversations."""
        begun = [self.begun(task, samplers, ("exchange", i), i) for i in range(self.n)]
        return await exchanged(task, begun, both=self.rollouts == "both")


def drawn(formats: Sequence[str], sampler: Sampler) -> str:
    """One of the formats; empty where there are none."""
    return formats[int(sampler.uniform() * len(formats))] if formats else ""
