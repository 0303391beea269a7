"""Process rewards beside the reward of success, with the changes that keep them from being collected by more steps.

Source: "On Designing Effective RL Reward at Training Time for LLM Reasoning", arXiv:2410.15115. With r_k the score of
the completion up to step k of K, by another reward, the return is alpha times the sum of r'_k plus the reward of
success. Each r'_k is given at the last token of its step.

    raw          r'_k = r_k                     grows with every step that scores high
    clip         r'_k = min(r_k - eta, 0)       no step is positive
    delta        r'_k = r_k - r_(k+1), r'_(K-1) = r_(K-1), r'_K = 0
    clip, delta  first the clip, then the delta of what it gives

With delta, the sum from step k to the end is r_k, so that it is bounded and does not depend on the number of steps. The
reward of a single step is the current score minus the next one: only sums to the end have a meaning, so that a run with
another discount than gamma = lambda = 1 is refused. With one step only the reward of success remains.

Where scores are positive, delta alone still favours more steps under returns from each token on: a step that is not the
last one has r_k left, the last one nothing, and what the next step takes away was given before it. With the clip, no
step has anything positive left.

`repeated` counts the steps that a completion has more than once.

Differs: alpha and eta are not in what could be read; those here are ours. Where the completion has more than `most`
steps, the last one has the rest.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated

from pydantic import Field, NonNegativeFloat

from posttrain.component import frozen
from posttrain.components.rewards import Reward, RewardContext, failure
from posttrain.grading.pieces import Split, ranges_of, with_text
from posttrain.types import Group, Score, Trajectory


@frozen
class Process(Reward):
    """Adds the scores of steps, clipped or as differences, to the reward of success."""

    correct: Reward
    """The reward of success; it decides what is correct."""
    steps: Reward
    """Scores the completion up to the end of each step, in [0, 1]; a process reward model, or a rule."""
    split: Split = "steps"
    """What the steps are."""
    weight: NonNegativeFloat = 0.2
    """alpha: weight of the scores of steps."""
    eta: float | None = None
    """Upper bound of a step's score, which becomes 0; None does not clip."""
    delta: bool = False
    """Whether a step is rewarded with its score minus that of the next step."""
    most: Annotated[int, Field(ge=1, le=1024)] = 64
    """Largest number of steps."""

    @property
    def wrapped(self) -> Mapping[str, Reward]:
        """Both rewards."""
        return {"correct": self.correct, "steps": self.steps}

    @property
    def runs(self) -> str:
        """What the reward of success runs."""
        return self.correct.runs

    @property
    def spans(self) -> bool:
        """True."""
        return True

    @property
    def undiscounted(self) -> bool:
        """True with differences."""
        return self.delta

    async def score(self, group: Group, context: RewardContext) -> Sequence[Score]:
        """Score success, and the prefixes of each completion as one group."""
        own = {name: replace(context, state=context.state.setdefault(name, {})) for name in ("correct", "steps")}
        correct = await self.correct.score(group, own["correct"])
        return await asyncio.gather(
            *(self._score(group, t, score, own["steps"]) for t, score in zip(group, correct, strict=True))
        )

    async def _score(self, group: Group, trajectory: Trajectory, correct: Score, context: RewardContext) -> Score:
        if correct.status == "error":
            return correct
        text = trajectory.completion
        ranges = ranges_of(text, self.split, self.most)
        prefixes = tuple(with_text(trajectory, text[:end]) for _, end in ranges)
        scores = await self.steps.score(replace(group, trajectories=prefixes), context) if prefixes else ()
        failed = next((score for score in scores if score.status == "error"), None)
        if failed is not None:
            return failure(f"a step could not be scored: {failed.explanation}", answer=correct.answer)
        rewards = [self.weight * reward for reward in shaped([s.value for s in scores], self.eta, self.delta)]
        written = [text[start:end].rstrip(";") for start, end in ranges]
        parts = {
            "correct": correct,
            "process": Score(value=float(sum(rewards)), status="ok"),
            "steps": Score(value=float(len(ranges)), status="ok"),
            "repeated": Score(value=float(len(written) - len(set(written))), status="ok"),
        }
        return replace(
            correct,
            value=correct.value + float(sum(rewards)),
            explanation=f"{correct.explanation}; {len(ranges)} steps",
            parts=parts,
            spans=tuple((a, b, reward, "process") for (a, b), reward in zip(ranges, rewards, strict=True)),
        )


def shaped(scores: Sequence[float], eta: float | None, delta: bool) -> list[float]:
    """[K] rewards of steps from their scores: clipped, then as differences."""
    clipped = list(scores) if eta is None else [min(score - eta, 0.0) for score in scores]
    if not delta:
        return clipped
    following = [*clipped[1:-1], 0.0]
    return [now - after for now, after in zip(clipped[:-1], following, strict=False)] + [0.0] * bool(clipped)
