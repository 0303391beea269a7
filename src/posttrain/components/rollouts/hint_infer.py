r"""A greedy rollout, and rollouts into which a hint is put right before the answer: what a model can do if reminded.

Source: Hint-infer of START, arXiv:2503.04625, by notes on the paper: the stream is cut at a trigger, a hint is
appended, and decoding goes on; code that follows is executed, and its result is inserted. Here the trigger is the text
before the answer; where a turn ends without it and without a call, the end token is withheld. Each insertion is one
more round of thought. A trigger inside a call, or in a result, does not count.

The first rollout of a task is greedy and has no hint. With `insertions=0` there are `n` plain ones instead.

Differs: one of the hints is drawn for each insertion; the paper has functions of hints by kind of problem. Hints are
trained with `trains_hints`, from which a model learns to remind itself; otherwise they are text of the environment.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated

import numpy as np
from pydantic import Field, PositiveInt

from posttrain.component import frozen
from posttrain.components.environments import Contained, Environment, EnvironmentFailed, Episode, with_opening
from posttrain.components.rollouts import Inserted, Rollout
from posttrain.components.rollouts._continued import continued, record_of
from posttrain.components.rollouts._segments import sampled_segment, sampler_of
from posttrain.components.rollouts.turns import Turns
from posttrain.engines import Sampler, Sampling
from posttrain.types import Completion, Group, IntArray, Message, Segment, StopReason, Task, Trajectory


@frozen
class HintInfer(Rollout):
    """Samples one greedy rollout and `n` with hints."""

    environment: Environment
    """The tool."""
    n: PositiveInt = 8
    """Rollouts with hints."""
    max_turns: PositiveInt = 7
    """Most turns, one more than calls (6 in the paper)."""
    hints: Annotated[tuple[Annotated[str, Field(min_length=1)], ...], Field(min_length=1)] = ("\nLet me calculate.",)
    """Texts of which one is put in."""
    trigger: Annotated[str, Field(min_length=1)] = "\n####"
    """Text at which the stream is cut."""
    insertions: Annotated[int, Field(ge=0, le=100)] = 1
    """Most hints of a rollout."""
    trains_hints: bool = True
    """Whether the hints are trained with what follows them."""
    sampling: Sampling = Sampling(max_tokens=32)
    """How each turn is sampled. The stop strings of the environment are added."""

    @property
    def temperature(self) -> float:
        """Sampling temperature; log-probabilities of greedy tokens are at temperature 1."""
        return self.sampling.temperature or 1.0

    def check(self, tasks: Sequence[Task]) -> None:
        """The tasks must be tasks of the environment."""
        self.environment.check_alone(tasks)

    def held_out(self, n: int, sampling: Sampling) -> Turns:
        """Plain rollouts with the tool."""
        return Turns(environment=self.environment, n=n, max_turns=self.max_turns, sampling=sampling)

    async def collect(self, task: Task, samplers: Mapping[str, Sampler]) -> list[Group]:
        """One group, the greedy rollout first."""
        sampler = sampler_of("policy", samplers)
        plain = replace(self.sampling, temperature=0.0)
        first = [] if not self.insertions else [self._rollout(task, sampler.bind("plain"), 0, plain, 0)]
        others = [
            self._rollout(task, sampler.bind("hinted", i), len(first) + i, self.sampling, self.insertions)
            for i in range(self.n)
        ]
        return [Group(key=task.key, trajectories=tuple(await asyncio.gather(*first, *others)))]

    async def _rollout(self, task: Task, sampler: Sampler, sample: int, sampling: Sampling, most: int) -> Trajectory:
        """One rollout. A failure of the environment ends it."""
        return await continued(sampler, lambda sampler: self._episode(task, sampler, sample, sampling, most))

    async def _episode(self, task: Task, sampler: Sampler, sample: int, sampling: Sampling, most: int) -> Trajectory:
        own, failure = _Progress(left=most), ""
        try:
            async with self.environment.open(task, sampler.uniform, record_of(sampler)) as instance:
                prompt = with_opening(task.prompt, instance.begin().text)
                ids = sampler.encode(prompt)
                own.segments.append(Segment(actor="prompt", token_ids=ids, text=sampler.decode(ids)))
                await self._play(instance, own, sampler, replace(task, prompt=prompt), sampling)
                await instance.finish()
                own.facts = replace(own.facts, measures=instance.measures(), verdict=instance.verdict())
        except EnvironmentFailed as error:
            failure = str(error)
            ids = sampler.encode(task.prompt)
            own.segments = own.segments or [Segment(actor="prompt", token_ids=ids, text=sampler.decode(ids))]
        return Trajectory(
            task=task,
            segments=tuple(own.segments),
            stop_reason=own.stop_reason,
            sample=sample,
            facts=(own.facts, Inserted(insertions=most - own.left, executed=own.executed)),
            failure=failure,
        )

    async def _play(
        self, instance: Contained, own: "_Progress", sampler: Sampler, task: Task, sampling: Sampling
    ) -> None:
        """Turns of the model, with hints, and of the tool."""
        ends = tuple(dict.fromkeys((*sampling.stop, *self.environment.stop)))
        for turn in range(self.max_turns):
            written, inside = "", False
            while True:
                stop = (*ends, self.trigger) if own.left and not inside else ends
                [completion] = await sampler.sample(own.token_ids, 1, replace(sampling, stop=stop))
                text = sampler.decode(completion.token_ids)
                inside = self._is_call(written + text) and text.endswith(self.trigger)
                kept = self._kept(completion, text, sampler) if own.left and not inside else None
                part = sampled_segment(completion, "policy", turn=turn)
                own.segments.append(replace(part, text=text) if kept is None else _cut(part, kept, sampler))
                written += own.segments[-1].text
                if (kept is None and not inside) or len(own.token_ids) >= sampler.context - 1:
                    break
                if kept is None:
                    continue
                written += self._insert(own, sampler, task, turn)
                if len(own.token_ids) >= sampler.context:
                    own.segments.pop()
                    break
            outcome = await instance.step(written)
            own.facts = replace(
                own.facts,
                valid_turns=(*own.facts.valid_turns, bool(outcome.valid)),
                turn_rewards=(*own.facts.turn_rewards, float(outcome.reward)),
            )
            last = own.segments[-1]
            own.segments[-1] = replace(last, reward=float(outcome.reward))
            if outcome.done:
                own.stop_reason = "length" if completion.stop_reason == "length" else "environment"
                return
            own.executed += outcome.valid
            reply = Message(role="user", content=outcome.observation.text)
            ids = sampler.encode_reply(task.prompt, last.token_ids, reply)
            if turn + 1 == self.max_turns or len(own.token_ids) + len(ids) >= sampler.context:
                return
            own.segments.append(
                Segment(actor="environment", token_ids=ids, turn=turn + 1, text=outcome.observation.text)
            )

    def _is_call(self, text: str) -> bool:
        """Whether a text ends inside a call, where the environment has an opening of calls."""
        opening = getattr(self.environment, "opening", "")
        after = text.rpartition(opening)[2] if opening and opening in text else None
        return after is not None and not any(end in after for end in self.environment.stop)

    def _kept(self, completion: Completion, text: str, sampler: Sampler) -> int | None:
        """Number of tokens before the place of a hint; None where none is put in."""
        place = text.find(self.trigger)
        called = any(end in (text if place < 0 else text[:place]) for end in self.environment.stop)
        if called or completion.stop_reason == "length":
            return None
        if place < 0:
            return max(len(completion.token_ids) - 1, 0)
        lengths = [len(sampler.decode(completion.token_ids[: i + 1])) for i in range(len(completion.token_ids))]
        return int(np.searchsorted(lengths, place, side="right"))

    def _insert(self, own: "_Progress", sampler: Sampler, task: Task, turn: int) -> str:
        """Put in a hint."""
        hint = self.hints[min(int(sampler.uniform() * len(self.hints)), len(self.hints) - 1)]
        ids = sampler.encode_completion(task.prompt, hint)[:-1]
        actor = "demonstration" if self.trains_hints else "environment"
        own.segments.append(Segment(actor=actor, token_ids=ids, trained=self.trains_hints, turn=turn, text=hint))
        own.left -= 1
        return hint


def _cut(part: Segment, kept: int, sampler: Sampler) -> Segment:
    """The first tokens of a sampled segment."""
    assert part.logp is not None, "it was sampled"
    ids = part.token_ids[:kept]
    entropy = None if part.entropy is None else part.entropy[:kept]
    return replace(part, token_ids=ids, logp=part.logp[:kept], entropy=entropy, text=sampler.decode(ids))


@dataclass(kw_only=True)
class _Progress:
    """A rollout in progress."""

    left: int
    """Hints that may still be put in."""
    segments: list[Segment] = field(default_factory=list)
    facts: Episode = field(default_factory=Episode)
    stop_reason: StopReason = "length"
    executed: int = 0

    @property
    def token_ids(self) -> IntArray:
        """All token ids so far."""
        return np.concatenate([segment.token_ids for segment in self.segments])
