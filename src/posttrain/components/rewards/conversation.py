r"""The reward of a finished conversation of two agents: its result, its length in tokens, and how natural it reads.

    R = task + tokens * T + language * N,    T = length / longest,    N = 1 / NLL of the worst turn

Source: Optima, arXiv:2410.08115, and its release (thunlp/Optima at 4017740, reward/deploy_reward.py). `longest` is that
of the conversations of the same task, or what a search measures (`rollouts.Exchange`). The NLL of a turn is the mean
over its tokens under the role `base`, as a message without the conversation; it is not a perplexity. Gates:

- up to `mute` tokens the term of the length is -1, against agents that say nothing;
- above `endless` tokens, or without a turn, the term of the language is -1;
- where a turn was written twice the term of the language is 0;
- with `strict`, as in trees, a turn that has the names of both agents, or one of them twice, makes the task's reward 0.

Differs: a conversation whose result could not be scored is an error; the release takes 0. The base reads a turn after
`lead`, where the release skips the first five tokens, which are a header.
"""

import asyncio
import math
from collections.abc import Mapping, Sequence
from typing import Annotated

import numpy as np
from pydantic import Field

from posttrain.component import frozen
from posttrain.components.rewards import Reward, RewardContext, failure
from posttrain.components.rewards.match import Match
from posttrain.components.rollouts import Exchange
from posttrain.engines import Sampler
from posttrain.types import Group, Score, Segment, Trajectory


@frozen
class Conversation(Reward):
    """Scores conversations; a rollout of another kind has the reward of its task alone."""

    of: Reward = Match(extract=("whole",))
    """Scores the answer that both stated; an empty text where they did not agree."""
    tokens: float = -0.6
    """lambda of the length (-1 is the default of the release's library); 0 does without the term and its gate."""
    language: float = 1.0
    """lambda of the language; 0 does without the term, its gates and the base."""
    mute: Annotated[int, Field(ge=0, le=10**9)] = 40
    """Tokens up to which a conversation is mute."""
    endless: Annotated[int, Field(ge=1, le=10**9)] = 2000
    """Tokens above which it is endless."""
    strict: bool = False
    """Whether turns with several names have no reward of the task."""
    agents: tuple[str, str] = ("Alice", "Bob")
    """The names."""
    base: str = "base"
    """Role of the model that reads turns."""
    lead: str = "\n"
    """What the base reads before a turn; a user's message where prompts are messages."""

    @property
    def wrapped(self) -> Mapping[str, Reward]:
        """The reward of the answer."""
        return {"of": self.of}

    @property
    def roles(self) -> frozenset[str]:
        """The base, and those of the reward of the answer."""
        return self.of.roles | (frozenset({self.base}) if self.language else frozenset())

    async def score(self, group: Group, context: RewardContext) -> Sequence[Score]:
        """Score every rollout by its conversation."""
        facts = [t.fact(Exchange) for t in group]
        answers = [t if fact is None else _answer(t, fact) for t, fact in zip(group, facts, strict=True)]
        found = await self.of.score(Group(key=group.key, trajectories=tuple(answers)), context)
        longest = max((fact.tokens for fact in facts if fact is not None), default=0)
        known = [fact for fact in facts if fact is not None]
        nll = await self._worst(known, group, context) if self.language and known else {}
        return [
            score if fact is None else self._joined(score, fact, longest, nll.get(fact.turns, math.inf))
            for score, fact in zip(found, facts, strict=True)
        ]

    def _joined(self, score: Score, fact: Exchange, longest: int, nll: float) -> Score:
        if score.status == "error":
            return failure(score.explanation, answer=score.answer, parts={"task": score})
        mixed = self.strict and any(self._mixed(turn) for turn in fact.turns)
        task = 0.0 if mixed else score.value
        length = self.tokens * fact.tokens / max(fact.longest or float(longest), 1.0)
        if self.tokens and fact.tokens <= self.mute:
            length = -1.0
        language = self.language / max(nll, 1e-6) if self.language else 0.0
        if len(set(fact.turns)) < len(fact.turns):
            language = 0.0
        if self.language and (fact.tokens > self.endless or not fact.turns):
            language = -1.0
        value = task + length + language
        why = f"task {task:.4g}, length {length:.4g} of {fact.tokens} tokens, language {language:.4g}"
        status = "wrong" if mixed else score.status
        return Score(value=value, status=status, answer=fact.agreed or None, explanation=why, parts={"task": score})

    def _mixed(self, turn: str) -> bool:
        """Whether a turn has the names of both as speakers, or one of them twice."""
        counts = [turn.count(f"{name}:") for name in self.agents]
        return sum(counts) > 1

    async def _worst(
        self, facts: Sequence[Exchange], group: Group, context: RewardContext
    ) -> dict[tuple[str, ...], float]:
        """By the turns of a conversation, the mean NLL of its worst turn."""
        sampler = context.sampler(self.base, self.kind)
        texts = list(dict.fromkeys(turn for fact in facts for turn in fact.turns))
        plain = isinstance(group.trajectories[0].task.prompt, str)
        own = dict(zip(texts, await asyncio.gather(*(self._nll(sampler, t, plain) for t in texts)), strict=True))
        return {fact.turns: max((own[turn] for turn in fact.turns), default=math.inf) for fact in facts}

    async def _nll(self, sampler: Sampler, text: str, plain: bool) -> float:
        prompt = self.lead if plain else ({"role": "user", "content": self.lead},)
        before = sampler.encode(prompt)  # type: ignore[arg-type]
        written = sampler.encode(text) if plain else sampler.encode_completion(prompt, text)  # type: ignore[arg-type]
        ids = np.concatenate([before, written])
        if len(ids) < 2:
            return math.inf
        logp = await sampler.logp(ids)
        return -float(np.mean(logp[max(len(before) - 1, 0) :]))


def _answer(trajectory: Trajectory, fact: Exchange) -> Trajectory:
    """The answer alone, as a completion of the task."""
    last = [segment for segment in trajectory.segments if segment.trained][-1]
    own = Segment(actor=last.actor, token_ids=last.token_ids, logp=last.logp, trained=True, text=fact.agreed)
    return Trajectory(
        task=trajectory.task,
        segments=(trajectory.segments[0], own),
        stop_reason=trajectory.stop_reason,
        sample=trajectory.sample,
        facts=trajectory.facts,
    )
