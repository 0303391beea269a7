"""RLPR: the probability of the reference answer after the completion's thoughts, relative to that before them.

Source: Yu et al. 2025, arXiv:2506.18254, and its released code (github.com/OpenBMB/RLPR). In a completion
``<think>z</think><answer>y</answer>`` the answer y is replaced by the reference answer; with p_t the probability that
the policy gives to its t-th token,

    b = mean of p_t,    a = the same right after the prompt, by the initial policy,    reward = max(0, b - a)

The mean of the probabilities is less sensitive to a single unlikely token than their product. Tags, white space and the
end token are not counted. A completion without all four tags, once each and in order, gets `malformed`. No verifier is
needed.

The paper's reward is 0.9 of this and 0.1 of the format (`format`), less one for `repetition`.

Differs: thoughts keep the sampled ids, where the release tokenizes the text again. Probabilities are not rounded to
bfloat16. a is computed in every step, from the frozen copy in `baseline`.
"""

import asyncio
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np

from posttrain.component import frozen
from posttrain.components.rewards import Reward, RewardContext, failure
from posttrain.engines import Sampler
from posttrain.grading.extraction import gold_answer
from posttrain.grading.tags import TagName, find_marks, marks_of, opened_by_prompt
from posttrain.signals import Signal, logp_of
from posttrain.types import FloatArray, Group, IntArray, Score, Segment, Task, Trajectory


@frozen
class ReferenceProbability(Reward):
    """Rewards thoughts that make the reference answer likely."""

    aggregate: Literal["mean", "product", "geometric"] = "mean"
    """How the probabilities of the answer's tokens are combined: their mean, their product, or its T-th root."""
    baseline: str | None = "reference"
    """Role of the frozen initial policy; None has no baseline, and the reward is b."""
    role: str = "policy"
    """The model that gives the probability of the answer."""
    tags: tuple[TagName, TagName] = ("think", "answer")
    """Names of the parts: thoughts, answer. An opening tag at the end of the prompt counts."""
    malformed: float = 0.0
    """Reward of a malformed completion (the release's other mode gives -1, and no reward for the format)."""
    correct_at: float = 0.5
    """Smallest reward that counts as correct, for the record only."""

    @property
    def roles(self) -> frozenset[str]:
        """The models that give probabilities."""
        return frozenset({self.role} if self.baseline is None else {self.role, self.baseline})

    @property
    def needs(self) -> frozenset[Signal]:
        """Log-probabilities of the reference answer."""
        return frozenset(logp_of(role) for role in self.roles)

    async def score(self, group: Group, context: RewardContext) -> Sequence[Score]:
        """Score every trajectory; a is computed once per task."""
        sampler = context.sampler(self.role, self.kind)
        first = None if self.baseline is None else context.sampler(self.baseline, self.kind)
        tasks = {trajectory.task.key: trajectory.task for trajectory in group}
        before = dict(zip(tasks, await asyncio.gather(*(self._before(t, first) for t in tasks.values())), strict=True))
        return await asyncio.gather(*(self._score(t, before[t.task.key], sampler) for t in group))

    async def _before(self, task: Task, sampler: Sampler | None) -> float | None:
        """a, of the answer right after the prompt; None without a baseline or a reference answer."""
        gold = gold_answer(task.answer or "")
        if sampler is None or not gold:
            return None
        prompt = Trajectory(task=task, segments=(sampler.prompt(task),), stop_reason="stop")
        return await self._likelihood(sampler, prompt, _ids(f" {gold}", sampler), 0)

    async def _score(self, trajectory: Trajectory, before: float | None, sampler: Sampler) -> Score:
        """The score of one completion."""
        gold = gold_answer(trajectory.task.answer or "")
        if not gold:
            return failure(f"task '{trajectory.task.key}' has no answer; give its row an 'answer' column")
        opening = opened_by_prompt(trajectory, self.tags)
        marks, wanted = find_marks(opening + trajectory.completion, self.tags), marks_of(self.tags)
        if [mark[0] for mark in marks] != wanted:
            return Score(value=self.malformed, status="wrong", explanation=f"needs {' '.join(wanted)}, once each")
        head, answer_ids, start = _swapped(trajectory, marks[2].end() - len(opening), gold, sampler)
        room = sampler.context - len(head.token_ids)
        if len(answer_ids) > room:
            return failure(f"the reference answer has {len(answer_ids)} tokens, and {room} are left in the context")
        after = await self._likelihood(sampler, head, answer_ids, start)
        value = after if before is None else max(0.0, after - before)
        compared = "" if before is None else f", and {before:.4g} before"
        return Score(
            value=value,
            status="ok" if value >= self.correct_at else "wrong",
            answer=trajectory.completion[marks[2].end() - len(opening) : marks[3].start() - len(opening)].strip(),
            explanation=f"{gold[:80]!r} has {self.aggregate} probability {after:.4g} after these thoughts{compared}",
        )

    async def _likelihood(self, sampler: Sampler, head: Trajectory, answer_ids: IntArray, start: int) -> float:
        """The combined probability of an answer's tokens from `start` on, without white space and end token."""
        whole = replace(head, segments=(*head.segments, Segment(actor="answer", token_ids=answer_ids)))
        logp = (await sampler.logp(whole.token_ids, vectors=whole.vectors))[len(head.token_ids) - 1 :]
        counted = [i for i in range(start, len(answer_ids)) if sampler.decode(answer_ids[i : i + 1]).strip()]
        return self._together(logp[counted])

    def _together(self, logp_T: FloatArray) -> float:
        """[T] log-probabilities of the answer's tokens combined into a probability; 0 without tokens."""
        if not len(logp_T):
            return 0.0
        log = logp_T.astype(np.float64)
        if self.aggregate == "mean":
            return float(np.exp(log).mean())
        return float(np.exp(log.sum() if self.aggregate == "product" else log.mean()))


def _swapped(trajectory: Trajectory, at: int, gold: str, sampler: Sampler) -> tuple[Trajectory, IntArray, int]:
    """The rollout up to character `at` of its completion, the tokens that follow with the reference answer, and the
    number of these before the answer.

    The kept tokens are the sampled ones. A token that spans the end of the tag is replaced, its text tokenized again.
    """
    text, written = trajectory.completion, trajectory.completion_ids
    count = bisect_left(range(len(written)), at, key=lambda n: len(sampler.decode(written[:n])))
    kept = sampler.decode(written[:count])
    if len(kept) > at:
        count -= 1
        kept = sampler.decode(written[:count])
    if not text.startswith(kept):
        count, kept = 0, ""
    rest = text[len(kept) : at]
    rest_ids, answer_ids = _ids(rest, sampler), _ids(rest + gold, sampler)
    pairs = zip(rest_ids, answer_ids, strict=False)
    start = next((i for i, (a, b) in enumerate(pairs) if a != b), len(rest_ids)) if rest else 0
    prompt = tuple(segment for segment in trajectory.segments if segment.actor == "prompt")
    thoughts = Segment(actor="policy", token_ids=written[:count])
    return replace(trajectory, segments=(*prompt, thoughts)), answer_ids, start


def _ids(text: str, sampler: Sampler) -> IntArray:
    """Tokens of a part of a completion with an end token, without a chat template."""
    return sampler.encode_completion("", text)
