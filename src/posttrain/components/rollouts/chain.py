r"""Several models write one after the other into one transcript, which all of them read; the last one answers.

Source: MARFT, arXiv:2504.16129, and its released code: in each step the agents write in a fixed order, each after its
own profile and all that was written before. The last agent's text is scored; the score is the reward of its last
token. A wrong answer is followed by a line that states so and by another step, up to `max_steps`.

A rollout has the tokens of all agents, so that credit can go along the whole chain (`advantages/chain_gae`); each
learns from its own tokens. The reward scores the last agent's text as an answer to the task alone.

Differs: the profile stands in the transcript right before the agent's turn, not at its start. One agent gives the
answer; the release counts the share of right answers among several. Where the context has no room for another turn, the
last text is the answer.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from pydantic import PositiveInt

from posttrain.component import frozen
from posttrain.components.rollouts import Rollout, Scorer
from posttrain.components.rollouts._segments import prompt_segment, sampled_segment, sampler_of
from posttrain.engines import Sampler, Sampling
from posttrain.types import Group, IntArray, Message, Segment, StopReason, Task, Trajectory


@frozen
class Chain(Rollout):
    """Samples `n` transcripts."""

    n: PositiveInt = 8
    """Transcripts per task."""
    sampling: Sampling = Sampling()
    """How each turn is sampled."""
    max_steps: PositiveInt = 1
    """Most answers; each but the first follows a wrong one."""
    profile: str = "\n{problem}"
    """What an agent reads before its turn; before the first turn of all there is the task's prompt alone. ``{problem}``
    and ``{role}`` are filled in."""
    wrong: str = "\nThis is wrong."
    """What follows a wrong answer, before the next profile."""
    role: str = "reasoner"
    """The first agent."""
    between: tuple[str, ...] = ()
    """Agents between the first and the last."""
    actor_role: str = "policy"
    """The last agent, whose text is the answer. Held-out tasks are answered by the policy alone."""

    @property
    def group_size(self) -> int:
        """The setting `n`."""
        return self.n

    @property
    def temperature(self) -> float:
        """Sampling temperature; log-probabilities of greedy tokens are at temperature 1."""
        return self.sampling.temperature or 1.0

    @property
    def agents(self) -> tuple[str, ...]:
        """Roles in their order."""
        return (self.role, *self.between, self.actor_role)

    @property
    def roles(self) -> frozenset[str]:
        """All agents but the policy."""
        return frozenset(self.agents) - {"policy"}

    async def collect_scored(self, task: Task, samplers: Mapping[str, Sampler], scorer: Scorer) -> list[Group]:
        """One group of `n` transcripts, whose answers are scored together in each step."""
        agents = [(role, sampler_of(role, samplers)) for role in self.agents]
        prompt = prompt_segment(task, agents[0][1])
        transcripts = [_Transcript(segments=[prompt], sample=i) for i in range(self.n)]
        active = transcripts
        for step in range(self.max_steps):
            await asyncio.gather(*(self._step(task, own, agents, step) for own in active))
            answers = tuple(own.answer(task, prompt) for own in active)
            scored = await scorer(Group(key=task.key, trajectories=answers))
            for own, answer in zip(active, scored, strict=True):
                own.scored = answer
            active = [own for own in active if not own.cut and not own.settled]
        return [Group(key=task.key, trajectories=tuple(own.trajectory(task) for own in transcripts))]

    async def _step(self, task: Task, own: "_Transcript", agents: Sequence[tuple[str, Sampler]], step: int) -> None:
        """Let every agent write once, as long as there is room."""
        for place, (role, sampler) in enumerate(agents):
            bound = sampler.bind("chain", own.sample, step, place)
            if own.turns:
                before = self.wrong if not place else ""
                own.observe(self._profile(task, role, before), bound, task)
            if own.turns and len(own.token_ids) >= bound.context:
                own.segments.pop()
                own.cut = True
                return
            [completion] = await bound.sample(own.token_ids, 1, self.sampling, own.segments[0].vectors)
            own.segments.append(sampled_segment(completion, role, turn=own.turns))
            own.stop_reason = completion.stop_reason
            own.turns += 1

    def _profile(self, task: Task, role: str, before: str) -> str:
        problem = task.prompt if isinstance(task.prompt, str) else task.prompt[-1]["content"]
        return before + self.profile.replace("{role}", role).replace("{problem}", problem)


@dataclass(kw_only=True)
class _Transcript:
    """A rollout in progress."""

    segments: list[Segment]
    sample: int
    turns: int = 0
    """Turns that were written."""
    stop_reason: StopReason = "stop"
    cut: bool = False
    """Whether the context had no room for another turn."""
    scored: Trajectory | None = None
    """The last answer, scored."""

    @property
    def token_ids(self) -> IntArray:
        """All token ids so far."""
        return np.concatenate([segment.token_ids for segment in self.segments])

    @property
    def settled(self) -> bool:
        """Whether the last answer is right, or could not be scored."""
        score = None if self.scored is None else self.scored.score
        return score is not None and score.status != "wrong"

    def observe(self, text: str, sampler: Sampler, task: Task) -> None:
        """Add a text that the next agent reads."""
        ids = sampler.encode_reply(task.prompt, self.segments[-1].token_ids, Message(role="user", content=text))
        self.segments.append(Segment(actor="environment", token_ids=ids, turn=self.turns, text=text))

    def answer(self, task: Task, prompt: Segment) -> Trajectory:
        """The last text as an answer to the task alone."""
        return Trajectory(
            task=task, segments=(prompt, self.segments[-1]), stop_reason=self.stop_reason, sample=self.sample
        )

    def trajectory(self, task: Task) -> Trajectory:
        """The transcript, with the score of its last answer."""
        assert self.scored is not None and self.scored.score is not None, "each step is scored"
        reason: StopReason = "length" if self.cut else self.stop_reason
        own = Trajectory(task=task, segments=tuple(self.segments), stop_reason=reason, sample=self.sample)
        return replace(own, score=self.scored.score)
