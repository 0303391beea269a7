"""Scores parts of a completion by themselves, and gives the reward of each at its last token.

Source: Fine-Grained RLHF, arXiv:2306.01693: a reward model with a density of its own scores sub-sentences, sentences
or the whole response; the reward of each part is +w or -w at its last token, 0 at other tokens. Several are added by
`sum`, whose weights are the w. The value is the sum over the parts.

Another reward scores each part, with the completion replaced by the part. Of one score of such rewards, a later part
replaces an earlier one that ends at the same token; ends are clamped to the last token (`stages/rl/spans`).

A reward of a part for every fault has less to find in one endless sentence than in many, and one for every good part
grows with their number: give both, or a reward for the length.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated

from pydantic import Field

from posttrain.component import frozen
from posttrain.components.rewards import Reward, RewardContext, failure
from posttrain.grading.pieces import Range, Split, ranges_of, with_text
from posttrain.types import Group, Score, Trajectory


@frozen
class Segments(Reward):
    """Adds the rewards of the parts of a completion."""

    of: Reward
    """Scores a part."""
    split: Split = "sentences"
    """What the parts are."""
    faults: bool = False
    """Whether `of` finds faults, so that a part with status ``ok`` is a bad one."""
    right: float | None = 0.3
    """Reward of a good part; None takes the value of its score."""
    wrong: float | None = -0.3
    """Reward of a bad part; None takes the value of its score."""
    placed: bool = True
    """Whether each reward is given at the end of its part; false gives the sum at the last token (holistic)."""
    most: Annotated[int, Field(ge=1, le=4096)] = 256
    """Largest number of parts; the last one has the rest of the completion."""

    @property
    def wrapped(self) -> Mapping[str, Reward]:
        """What scores a part."""
        return {"of": self.of}

    @property
    def spans(self) -> bool:
        """Whether rewards are given at the ends of parts."""
        return self.placed

    async def score(self, group: Group, context: RewardContext) -> Sequence[Score]:
        """Score the parts of each completion as one group."""
        return [await self._score(group, trajectory, context) for trajectory in group]

    async def _score(self, group: Group, trajectory: Trajectory, context: RewardContext) -> Score:
        text = trajectory.completion
        ranges = ranges_of(text, self.split, self.most)
        parts = tuple(with_text(trajectory, text[start:end]) for start, end in ranges)
        scores = await self.of.score(replace(group, trajectories=parts), context) if parts else ()
        if not parts:
            # A task that the reward cannot score is an error whatever the completion is.
            (bare,) = await self.of.score(replace(group, trajectories=(trajectory,)), context)
            if bare.status == "error":
                return bare
            return Score(value=0.0, status="wrong", explanation="no part to score")
        return self._joined(ranges, scores)

    def _joined(self, ranges: Sequence[Range], scores: Sequence[Score]) -> Score:
        failed = next((score for score in scores if score.status == "error"), None)
        if failed is not None:
            return failure(f"a part could not be scored: {failed.explanation}")
        good = [(score.status == "ok") != self.faults for score in scores]
        rewards = [self._reward(score, fine) for score, fine in zip(scores, good, strict=True)]
        spans = tuple((start, end, reward, "") for (start, end), reward in zip(ranges, rewards, strict=True))
        bad = len(good) - sum(good)
        return Score(
            value=float(sum(rewards)),
            status="wrong" if bad else "ok",
            explanation=f"{bad} of {len(good)} {self.split} are bad",
            parts={"bad": Score(value=float(bad), status="ok"), "parts": Score(value=float(len(good)), status="ok")},
            spans=spans if self.placed else (),
        )

    def _reward(self, score: Score, good: bool) -> float:
        fixed = self.right if good else self.wrong
        return score.value if fixed is None else fixed
