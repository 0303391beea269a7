r"""Several episodes of one task, each after notes on those that failed: what a model learns while its weights stay.

After a failed episode a note is kept, and the notes stand before the prompt of the next one, in a new instance of the
environment. Success is the environment's verdict. A note is a text with the turns of the model and the explanation of
the verdict, or with `request` what the model itself writes to such a text. The last `kept` notes are shown. A chain
ends with its first success, or after `tries` episodes.

In a stage, every episode is a rollout of the group, its notes a part of its prompt, so that weights can be trained as
well; `episode` numbers the chain and `row` its episodes. Held-out tasks have `tries` episodes too, and the last counts.

Source: Reflexion, Shinn et al. 2023, arXiv:2303.11366 (memory of 1 to 3 notes); the branch of experience and feedback
in the survey of optimization of agents, arXiv:2503.12434, whose branches are mapped in docs/agents.md.

Measured here: a ball in one of six boxes, episodes of two turns, 2,048 of them, 5 seeds (``python
docs/experiments/agent_branches.py``). A hidden box is found in three independent episodes in 67 % [65, 69], and in 80 %
[78, 82] with notes, the weights being the same; after reinforcement with the environment's reward in 53 % [43, 64] and
83 % [71, 95]. A stated box is found in one episode in 55 % before; in 67 % [63, 71] after 24 expert episodes, 98 % [96,
100] after imitation of own successes, 90 % [75, 106] by preferences, 98 % [97, 99] by reinforcement, 80 % [55, 105] by
a learned reward, 99 % [98, 100] by reinforcement after expert episodes. The survey's order is here except for own
successes, which are not behind preferences. Not tried: other shares of expert episodes (docs/experiments.md).
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Final, Self

from pydantic import Field, PositiveInt, field_validator, model_validator

from posttrain.component import frozen
from posttrain.components.environments import Environment, Episode
from posttrain.components.rollouts import Rollout, Row, Scorer
from posttrain.components.rollouts._segments import sampler_of
from posttrain.components.rollouts.turns import Turns
from posttrain.datasets.templates import check_places, fill, places, prompt_from
from posttrain.engines import Sampler, Sampling
from posttrain.types import Group, Task, Trajectory

ROWS: Final = (186,)
PLACES: Final = ("turns", "explanation", "note")


@frozen
class Notes:
    """What is kept of failed episodes."""

    kept: Annotated[int, Field(ge=0, le=1000)] = 3
    """Notes that are shown, the last ones; 0 shows none, so that episodes are independent."""
    note: str = "An earlier try failed: {turns} ({explanation})\n"
    """A note. Placeholders: turns (the model's, one after the other), explanation (the environment's), and note."""
    request: str = ""
    """What the model writes a note to, with ``{turns}`` and ``{explanation}``, after the task's prompt; its text is
    ``{note}``. Empty requests none."""
    max_tokens: PositiveInt = 64
    """Longest note that the model writes."""

    @field_validator("note", "request")
    @classmethod
    def check_places(cls, text: str) -> str:
        """Refuse a placeholder that looks like a misspelling."""
        return check_places(text, PLACES)

    @model_validator(mode="after")
    def _check_note(self) -> Self:
        if ("note" in places(self.note)) != bool(self.request):
            raise ValueError(
                "{note} in the note is the text that the model writes to the request: give both, or neither"
            )
        return self


@frozen
class Reflected(Rollout):
    """Samples `n` chains of up to `tries` episodes."""

    environment: Environment
    """What the model acts in; each episode has a new instance."""
    n: PositiveInt = 4
    """Chains of episodes per task."""
    tries: Annotated[int, Field(ge=1, le=1000)] = 3
    """Most episodes of a chain."""
    max_turns: PositiveInt = 8
    """Most turns of an episode."""
    notes: Notes = Notes()
    """What is kept of failed episodes."""
    sampling: Sampling = Sampling()
    """How each turn is sampled. The stop strings of the environment are added."""
    role: str = "policy"
    """The model that acts and is trained."""

    @property
    def temperature(self) -> float:
        """Sampling temperature; log-probabilities of greedy tokens are at temperature 1."""
        return self.sampling.temperature or 1.0

    def check(self, tasks: Sequence[Task]) -> None:
        """The tasks must be tasks of the environment."""
        self.environment.check_alone(tasks)

    def held_out(self, n: int, sampling: Sampling) -> "Reflected":
        """`n` chains."""
        return replace(self, n=n, sampling=sampling)

    async def collect(self, task: Task, samplers: Mapping[str, Sampler]) -> list[Group]:
        """The last episode of each chain."""
        chains = await self._chains(task, samplers)
        last = tuple(replace(chain[-1], sample=i) for i, chain in enumerate(chains))
        return [Group(key=task.key, trajectories=last)]

    async def collect_scored(self, task: Task, samplers: Mapping[str, Sampler], scorer: Scorer) -> list[Group]:
        """One group: every episode of all chains."""
        found = [t for chain in await self._chains(task, samplers) for t in chain]
        return [
            await scorer(Group(key=task.key, trajectories=tuple(replace(t, sample=i) for i, t in enumerate(found))))
        ]

    async def _chains(self, task: Task, samplers: Mapping[str, Sampler]) -> list[list[Trajectory]]:
        """All chains, concurrently."""
        sampler = sampler_of(self.role, samplers)
        return list(await asyncio.gather(*(self._chain(task, sampler.bind("chain", i), i) for i in range(self.n))))

    async def _chain(self, task: Task, sampler: Sampler, number: int) -> list[Trajectory]:
        """Episodes up to the first success, or the last one."""
        found: list[Trajectory] = []
        notes: list[str] = []
        kept = self.notes.kept
        episodes = Turns(
            environment=self.environment, n=1, max_turns=self.max_turns, sampling=self.sampling, role=self.role
        )
        for row in range(self.tries):
            noted = _with_notes(task, notes[-kept:] if kept else [], sampler)
            played = await episodes.rollout(noted, sampler.bind("episode", row), row)
            facts = (*played.facts, Row(episode=number, row=row))
            found.append(replace(played, task=task, facts=facts))
            episode = played.fact(Episode)
            if played.failure or (episode is not None and episode.verdict is not None and episode.verdict.solved):
                break
            if row + 1 < self.tries and kept:
                notes.append(await self._note(task, played, sampler.bind("note", row)))
        return found

    async def _note(self, task: Task, played: Trajectory, sampler: Sampler) -> str:
        """The note on a failed episode."""
        episode = played.fact(Episode)
        verdict = episode.verdict if episode is not None else None
        own = [segment.text for segment in played.segments if segment.actor == self.role]
        values = {"turns": "".join(own).strip(), "explanation": verdict.explanation if verdict is not None else ""}
        if self.notes.request:
            prompt = prompt_from(task, "{question}" + self.notes.request, values)
            ids = sampler.encode(prompt)
            if len(ids) >= sampler.context:
                return ""
            [written] = await sampler.sample(ids, 1, Sampling(max_tokens=self.notes.max_tokens))
            values["note"] = written.text
        return fill(self.notes.note, values)


def _with_notes(task: Task, notes: Sequence[str], sampler: Sampler) -> Task:
    """The task after the last notes that leave half of the model's context free."""
    for first in range(len(notes)):
        prompt = prompt_from(task, "{notes}{question}", {"notes": "".join(notes[first:])})
        if len(sampler.encode(prompt)) <= sampler.context // 2:
            return replace(task, prompt=prompt)
    return task
