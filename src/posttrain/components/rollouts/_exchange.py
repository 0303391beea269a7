"""Two agents that write by turns: a conversation, or a game."""

import asyncio
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Final, Literal, Protocol, Self, TypeVar, runtime_checkable

import numpy as np
from pydantic import Field, field_validator

from posttrain.component import frozen
from posttrain.components.environments import with_opening
from posttrain.components.rollouts import Exchange
from posttrain.components.rollouts._segments import sampled_segment, sampler_of
from posttrain.datasets.templates import check_places, fill, prompt_from
from posttrain.engines import Sampler, Sampling
from posttrain.types import Group, IntArray, Message, Segment, StopReason, Task, Trajectory

AGENTS: Final = ("Alice", "Bob")
VIEW: Final = (
    "You are {agent}, and solve a problem with {other}, who cannot see what you see.\n{context}\n{question}\nWrite "
    "one message to {other}. As soon as you know the answer, write it as <A>answer</A>.\n{form}"
)
HEARD: Final = "{speaker}: {text}"
TalkT = TypeVar("TalkT", bound="Talk")


@frozen
class Form:
    """How two agents talk."""

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

    @field_validator("view", "heard")
    @classmethod
    def check_view(cls, template: str) -> str:
        """Refuse a misspelled placeholder."""
        return check_places(template, ("agent", "other", "context", "question", "form", "speaker", "text"))

    def prompt(self, task: Task, place: int, form: str) -> str | tuple[Message, ...]:
        """What an agent reads first."""
        contexts = task.fields.get(self.column)
        own = contexts[place] if isinstance(contexts, list | tuple) and len(contexts) == 2 else ""
        values = {"agent": self.agents[place], "other": self.agents[1 - place], "context": str(own), "form": form}
        return prompt_from(task, self.view, values)


@runtime_checkable
class TwoAgents(Protocol):
    """What rollouts of two agents have."""

    @property
    def rollouts(self) -> Literal["both", "first"]:
        """Whose rollouts a conversation gives."""

    @property
    def role(self) -> str:
        """The model of both agents, or of the first."""

    @property
    def partner(self) -> str | None:
        """The role of the second agent, if it has its own."""

    @property
    def swapped(self) -> bool:
        """Whether the partner is the first agent in every second conversation."""

    def begun(self, task: Task, samplers: Mapping[str, Sampler], key: tuple[int | str, ...], number: int) -> "Talk":
        """What has not begun, with draws by a key."""


async def exchanged(task: Task, begun: "Sequence[Talk]", *, both: bool) -> list[Group]:
    """One group with the rollouts of all conversations, of each agent or of the first alone."""
    talks = await asyncio.gather(*(talk.finish() for talk in begun))
    kept = [t for number, talk in enumerate(talks) for t in rollouts_of(talk, number, both=both)]
    return [Group(key=task.key, trajectories=tuple(kept))]


def rollouts_of(talk: "Talk", number: int, longest: float | None = None, *, both: bool) -> list[Trajectory]:
    """What a group has of a conversation: not what a partner saw."""
    whole = talk.rollouts(number, longest)
    if talk.partner is not None:
        return [t for t in whole if t.sample % 2 != talk.partner_place]
    return [t for t in whole if both or t.sample % 2 == 0]


def partner_of(
    role: str | None, samplers: Mapping[str, Sampler], key: tuple[int | str, ...], *, first: bool
) -> tuple[tuple[str, Sampler] | None, int]:
    """Role and sampler of the second agent, if it has its own, and its place: 0 if it is first."""
    if role is None:
        return None, 1
    return (role, sampler_of(role, samplers).bind(*key)), 0 if first else 1


@dataclass(kw_only=True)
class Talk:
    """A conversation in progress; the turns are those of both, by turns."""

    form: Form
    task: Task
    sampler: Sampler
    sampling: Sampling
    max_turns: int
    role: str = "policy"
    hint: str = ""
    """The format that this conversation is asked for."""
    partner: tuple[str, Sampler] | None = None
    """Role and sampler of the other agent; None is those of the first."""
    partner_place: int = 1
    """Which of the two agents the partner is."""
    turns: list[Segment] = field(default_factory=list)
    views: list[list[Segment]] = field(default_factory=lambda: [[], []])
    answers: list[str] = field(default_factory=list)
    agreed: str = ""
    stop_reason: StopReason = "length"
    failure: str = ""
    """Why it could not go on, where it could not."""

    @property
    def speaker(self) -> int:
        """Who writes next."""
        return len(self.turns) % 2

    @property
    def over(self) -> bool:
        """Whether the same answer was stated twice, or no turn is left."""
        return bool(self.agreed) or len(self.turns) >= self.max_turns

    def context(self) -> IntArray:
        """[L] what the next speaker reads."""
        if not self.views[self.speaker]:
            self._open(self.speaker)
        return np.concatenate([segment.token_ids for segment in self.views[self.speaker]])

    async def next_turn(self) -> Segment | None:
        """The next turn; None where the context has no room for one."""
        ids = self.context()
        role, sampler = self._author(self.speaker)
        if len(ids) >= sampler.context:
            return None
        [completion] = await sampler.sample(ids, 1, self.sampling)
        own = sampled_segment(completion, role, turn=len(self.turns))
        return replace(own, text=sampler.decode(own.token_ids))

    def take(self, turn: Segment) -> None:
        """Add a turn, which the other agent reads."""
        place = self.speaker
        self.context()
        self.views[place].append(turn)
        self.turns.append(turn)
        found = re.findall(self.form.answer, turn.text, re.DOTALL)
        answer = str(found[-1]).strip() if found else ""
        if answer and answer in self.answers:
            self.agreed, self.stop_reason = answer, "stop"
        self.answers.append(answer)
        if self.views[1 - place]:
            self._hear(1 - place, turn)

    def _author(self, place: int) -> tuple[str, Sampler]:
        """Role and sampler of an agent, in whose ids it reads and writes."""
        other = self.partner if place == self.partner_place else None
        return (self.role, self.sampler) if other is None else other

    def _open(self, place: int) -> None:
        prompt = self.form.prompt(self.task, place, self.hint)
        if self.turns:
            prompt = with_opening(prompt, self._heard(self.turns[-1], 1 - place))
        sampler = self._author(place)[1]
        ids = sampler.encode(prompt)
        text = prompt if isinstance(prompt, str) else sampler.decode(ids)
        self.views[place].append(Segment(actor="prompt", token_ids=ids, text=text, turn=len(self.turns)))

    def _hear(self, place: int, turn: Segment) -> None:
        text = self._heard(turn, 1 - place)
        prompt = self.form.prompt(self.task, place, self.hint)
        own = self.views[place][-1].token_ids
        ids = self._author(place)[1].encode_reply(prompt, own, Message(role="user", content=text))
        self.views[place].append(Segment(actor="environment", token_ids=ids, turn=len(self.turns), text=text))

    def _heard(self, turn: Segment, place: int) -> str:
        text = turn.text
        for stop in self.sampling.stop:
            text = text.removesuffix(stop)
        return fill(self.form.heard, {"speaker": self.form.agents[place], "text": text})

    async def finish(self) -> Self:
        """Go on to the end."""
        while not self.over:
            turn = await self.next_turn()
            if turn is None:
                break
            self.take(turn)
        return self

    async def replay(self, turns: Sequence[Segment]) -> Self:
        """Begin with given turns, up to what the next speaker reads."""
        return replayed(self, turns)

    async def finish_after(self, turns: Sequence[Segment]) -> Self:
        """Begin with given turns, and go on to the end."""
        return await replayed(self, turns).finish()

    def fact(self, number: int, longest: float | None = None) -> Exchange:
        """What is known of the whole conversation."""
        return Exchange(
            exchange=number,
            turns=tuple(turn.text for turn in self.turns),
            tokens=sum(map(len, self.turns)),
            agreed=self.agreed,
            longest=longest,
        )

    def rollouts(self, number: int, longest: float | None = None) -> list[Trajectory]:
        """The conversation as each agent saw it, if it wrote at all."""
        fact, found = self.fact(number, longest), []
        for place, view in enumerate(self.views):
            while view and not view[-1].trained and view[-1].actor != "prompt":
                view = view[:-1]
            if any(segment.trained for segment in view):
                found.append(
                    Trajectory(
                        task=self.task,
                        segments=tuple(view),
                        stop_reason=self.stop_reason,
                        sample=2 * number + place,
                        facts=(fact,),
                    )
                )
        return found


def replayed(talk: TalkT, turns: Sequence[Segment]) -> TalkT:
    """A conversation that begins with given turns."""
    for turn in turns:
        talk.take(turn)
    return talk
