"""Memory-R+: another reward, with rewards for thoughts like those of earlier successes and unlike earlier failures.

Source: Le et al. 2025 (Memory-R+), arXiv:2504.02273, and its release (github.com/thaihungle/Memory-R at a193f4f6). Two
memories have the embedded thoughts of correct and of incorrect rollouts by question. A rollout is added to its memory
first and scored after it. With the values of the k questions nearest to its own, and e its own embedding,

    exploit  1 - D of the distance d = |e - centroid of the successes|; 0 without a success
    explore  D of the novelty 1 - max cosine with a failure, 0 until there are `warm_up` questions with failures

D scales to 0 and 1 by the least and largest of the last `window` numbers; where these are equal, d stays as it is and
the novelty is 0. A failure is its own nearest one, so that `explore` is for correct rollouts alone. `exploit` is for
incorrect ones too: thoughts copied from a success have all of it, whatever the answer.

An embedding is the counts of a text's pieces of one to three characters in 256 places, scaled to length 1; nothing is
loaded. Memories are the reward's state and are in checkpoints, as texts. Only scores that are learned from
(`RewardContext.learning`) are added and changed.

Differs: the release embeds by a sentence encoder. A group is compared with itself and with earlier steps, not with
other groups of its step, so that no result depends on which of them is finished first. Novelties below 1e-9 are 0,
where the release scales their rounding errors up to 1. Its first question stands for a whole batch, and its full
memory loses values under the wrong question; here each question has its own. `decay` is by step.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Annotated, Any, Final

import numpy as np
from pydantic import Field, NonNegativeFloat

from posttrain.component import frozen
from posttrain.components.rewards import Reward, RewardContext
from posttrain.datasets.templates import question_of
from posttrain.grading.tags import TagName, find_marks
from posttrain.grading.text_pieces import embedded
from posttrain.types import Group, Score, Trajectory

TINY: Final = 1e-9
"""Novelties below it are 0."""
MEMORIES: Final = ("success", "failure")


@frozen
class EpisodicMemory(Reward):
    """Adds to a reward by the thoughts of earlier rollouts."""

    of: Reward
    """The reward that decides which rollouts are correct."""
    exploit: NonNegativeFloat = 1.0
    """Weight of being near to successes."""
    explore: NonNegativeFloat = 1.0
    """Weight of being far from failures."""
    neighbours: Annotated[int, Field(ge=1, le=1000)] = 1
    """k: how many questions of a memory are compared with; the rollout's own is the nearest, where it is there."""
    window: Annotated[int, Field(ge=1, le=10_000)] = 100
    """How many of the last distances, and novelties, give the scale."""
    most_questions: Annotated[int, Field(ge=1, le=100_000)] = 10_000
    """Most questions of a memory; the oldest is dropped."""
    most_values: Annotated[int, Field(ge=1, le=10_000)] = 100
    """Most thoughts of a question; the oldest is dropped (1,000 in the release without `explore`)."""
    warm_up: Annotated[int, Field(ge=0, le=100_000)] = 500
    """Questions with a failure before `explore` begins."""
    decay: Annotated[float, Field(gt=0.0, le=1.0)] = 1.0
    """`explore` is multiplied by it in every step; 1 in the release's runs."""
    tag: TagName = "think"
    """Name of the tags around thoughts. Without both of them the whole completion is embedded."""

    @property
    def wrapped(self) -> Mapping[str, Reward]:
        """The reward that decides what is correct."""
        return {"of": self.of}

    async def score(self, group: Group, context: RewardContext) -> Sequence[Score]:
        """Score by `of`; in training add the rollouts to the memories, in their order, and both rewards."""
        own = replace(context, state=context.state.setdefault("of", {})) if context.learning else context
        scores = await self.of.score(group, own)
        if not context.learning:
            return scores
        self._merge(context)
        seen = Seen(context.state, self)
        return [self._score(t, score, seen, context.step) for t, score in zip(group, scores, strict=True)]

    def _score(self, trajectory: Trajectory, score: Score, seen: "Seen", step: int) -> Score:
        if score.status == "error":
            return score
        question, thoughts = question_of(trajectory.task), thoughts_of(trajectory.completion, self.tag)
        exploit, explore = seen.add(question, thoughts, score.status == "ok")
        explore *= self.decay**step
        return Score(
            value=score.value + self.exploit * exploit + self.explore * explore,
            status=score.status,
            answer=score.answer,
            confidence=score.confidence,
            explanation=f"{score.explanation}; exploit {exploit:.3g}, explore {explore:.3g}",
            parts={
                "of": score,
                "exploit": Score(value=exploit, status="ok"),
                "explore": Score(value=explore, status="ok"),
            },
        )

    def _merge(self, context: RewardContext) -> None:
        """Add what earlier steps have seen to the memories, in an order that is independent of the groups' order."""
        state = context.state
        if state.get("step") == context.step:
            return
        for question, thoughts, solved, distance, novelty in sorted(state.get("new", []), key=repr):
            memory = state.setdefault(MEMORIES[not solved], {})
            values = memory.setdefault(question, [])
            values.append(thoughts)
            del values[: -self.most_values]
            while len(memory) > self.most_questions:
                del memory[next(iter(memory))]
            for name, number in (("distances", distance), ("novelties", novelty)):
                if number is not None:
                    state[name] = [*state.get(name, []), number][-self.window :]
        state |= {"step": context.step, "new": []}


@dataclass(slots=True)
class Seen:
    """The memories as a group sees them: those of earlier steps, and its own rollouts so far."""

    state: dict[str, Any]
    settings: EpisodicMemory
    own: list[tuple[str, str, bool, float | None, float | None]]

    def __init__(self, state: dict[str, Any], settings: EpisodicMemory) -> None:
        self.state, self.settings, self.own = state, settings, []

    def add(self, question: str, thoughts: str, solved: bool) -> tuple[float, float]:
        """Add a rollout, and return both of its rewards."""
        self.own.append((question, thoughts, solved, None, None))
        point = embedded(thoughts)
        successes = self._values(question, 0)
        distance = novelty = None
        exploit = explore = 0.0
        if successes:
            distance = float(np.linalg.norm(point - np.mean([embedded(text) for text in successes], axis=0)))
            exploit = 1.0 - scaled(distance, self._window("distances", 3, distance), equal=distance)
        failed = self.state.get("failure", {}).keys() | {row[0] for row in self.own if not row[2]}
        if len(failed) >= self.settings.warm_up:
            failures = self._values(question, 1)
            explore = 1.0
            if failures:
                novelty = 1.0 - max(float(point @ embedded(text)) for text in failures)
                novelty = novelty if novelty >= TINY else 0.0
                explore = scaled(novelty, self._window("novelties", 4, novelty), equal=0.0)
        self.own[-1] = (question, thoughts, solved, distance, novelty)
        self.state["new"].append(list(self.own[-1]))
        return exploit, explore

    def _values(self, question: str, memory: int) -> list[str]:
        """Thoughts of the nearest questions of a memory: 0 for successes, 1 for failures."""
        stored: Mapping[str, list[str]] = self.state.get(MEMORIES[memory], {})
        added: dict[str, list[str]] = {}
        for asked, thoughts, solved, *_ in self.own:
            if solved == (memory == 0):
                added.setdefault(asked, []).append(thoughts)
        known = [*stored, *(asked for asked in added if asked not in stored)]
        if self.settings.neighbours == 1 and (question in stored or question in added):
            known = [question]
        near = embedded(question)
        order = sorted(known, key=lambda asked: -float(near @ embedded(asked)))[: self.settings.neighbours]
        most = self.settings.most_values
        return [text for asked in order for text in [*stored.get(asked, []), *added.get(asked, [])][-most:]]

    def _window(self, name: str, place: int, newest: float) -> list[float]:
        """The last numbers of a kind, those of this group and the newest included."""
        own = [float(number) for row in self.own if (number := row[place]) is not None]
        return [*self.state.get(name, []), *own, newest][-self.settings.window :]


def scaled(number: float, window: Sequence[float], *, equal: float) -> float:
    """The place of a number between the least and the largest of a window; `equal` where these are the same."""
    low, high = min(window), max(window)
    return (number - low) / (high - low) if high > low else equal


def thoughts_of(completion: str, tag: str) -> str:
    """What is between the first opening and the next closing tag; the whole completion without them."""
    marks = find_marks(completion, (tag,))
    for first, second in pairwise(marks):
        if first[0] == f"<{tag}>" and second[0] == f"</{tag}>":
            return completion[first.end() : second.start()]
    return completion
