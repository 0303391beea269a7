"""Rollouts with scores that are given, for rules of pairs."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from posttrain.components.pairings import Paired, Pairing, Rollouts
from posttrain.components.rewards import failure
from posttrain.components.rollouts import DataRating, Scorer
from posttrain.engines import Sampler
from posttrain.types import Score, Segment, StopReason, Task, Trajectory
from tests.components.search.lines import Lines, never

Value = float | None


class Drawing(Lines):
    """Numbers for a rule's draws, in this order."""

    def __init__(self, *numbers: float) -> None:
        super().__init__({})
        self.numbers = list(numbers)

    def uniform(self) -> float:
        return self.numbers.pop(0)


def rollout(task: Task, text: str, value: Value, sample: int, stop: StopReason = "stop") -> Trajectory:
    ids = np.array([*text.encode(), 0][: None if stop == "stop" else -1], np.int64)
    prompt = Segment(actor="prompt", token_ids=np.array(list(str(task.prompt).encode())), text=str(task.prompt))
    own = Segment(actor="policy", token_ids=ids, trained=True, text=text)
    score = failure("?") if value is None else Score(value=value, status="ok" if value >= 1 else "wrong")
    return Trajectory(task=task, segments=(prompt, own), stop_reason=stop, sample=sample, score=score)


def pair(
    rule: Pairing,
    *texts: tuple[str, Value],
    task: Task | None = None,
    sampler: Sampler | None = None,
    scorer: Scorer = never,
    ratings: Sequence[float] = (),
) -> Paired:
    """What a rule makes of texts with scores; None for one that could not be scored."""
    task = task or Task(key="t", prompt="P:")
    found = tuple(rollout(task, text, value, i) for i, (text, value) in enumerate(texts))
    if ratings:
        rated = zip(found, ratings, strict=True)
        found = tuple(replace(t, facts=(DataRating(rating=rating),)) for t, rating in rated)
    given = Rollouts(
        task=task,
        trajectories=found,
        sampler=sampler or Drawing(),  # type: ignore[arg-type]
        scorer=scorer,
    )
    return asyncio.run(rule.pair(given))


def texts(paired: Paired) -> list[tuple[str, str]]:
    return [(one.chosen, one.rejected) for one in paired.pairs]
