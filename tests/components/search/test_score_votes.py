"""Votes of a judge's replies: sums, majorities, a meta model, ties, and replies that cannot be read."""

import asyncio
import json
import math
from collections.abc import Sequence

import numpy as np
import pytest
from pydantic import ValidationError

from posttrain.components.search import Found
from posttrain.components.search.score_votes import ScoreVotes, kept_by, points_of
from posttrain.engines import Sampling
from posttrain.types import Completion, FloatArray, Task
from tests.builders import ScriptedSampler

REPLIES = [{"a": 3, "b": 4}, {"a": 9, "b": 2}, {"a": 3, "b": 4}]
"""b is first in two of three; the sums are 15 and 10."""


class Judge(ScriptedSampler):
    """Writes these replies, in their order; text that is no object is a reply that cannot be read."""

    def __init__(self, *replies: object) -> None:
        super().__init__("policy")
        self.replies = replies

    async def sample(
        self, token_ids: np.ndarray, n: int, sampling: Sampling, vectors: FloatArray | None = None
    ) -> list[Completion]:
        return [
            Completion(
                token_ids=np.array([65 + i]),
                logp=np.zeros(1, np.float32),
                stop_reason="stop",
                version=0,
                text=json.dumps({"scores": reply}) if isinstance(reply, dict) else str(reply),
            )
            for i, reply in enumerate(self.replies[:n])
        ]


class Meta(ScriptedSampler):
    """Prefers the replies by their numbers."""

    def __init__(self, *scores: float) -> None:
        super().__init__("meta")
        self.by_reply = scores

    async def score(self, token_ids: np.ndarray, *, vectors: np.ndarray | None = None) -> float:
        return self.by_reply[int(token_ids[-1]) - 65]


def found(search: ScoreVotes, replies: Sequence[object], *meta: float) -> Found:
    samplers = {"policy": Judge(*replies), "meta": Meta(*meta)}
    return asyncio.run(search.search(Task(key="k", prompt="q"), samplers))


def test_sums_and_majorities_may_differ() -> None:
    assert found(ScoreVotes(n=3), REPLIES).values == (10.0, 15.0, 10.0)
    assert found(ScoreVotes(n=3, count="majority"), REPLIES).values == (2.0, 1.0, 2.0)


def test_a_reply_that_cannot_be_read_is_skipped_and_counted() -> None:
    result = found(ScoreVotes(n=4), [*REPLIES, "none"])
    assert result.values[:3] == (10.0, 15.0, 10.0) and math.isnan(result.values[3])
    assert result.statistics["unreadable"] == 0.25 and result.best is result.trajectories[1]
    assert points_of([{"a": 4.0, "b": 1.0}, {}], "sum") == {"a": 4.0, "b": 1.0}, "no zeros"
    nothing = found(ScoreVotes(n=2), ["none", "nothing"])
    assert np.isnan(nothing.values).all() and nothing.statistics["ties"] == 0.0


def test_the_meta_model_keeps_half_and_all_is_the_plain_vote() -> None:
    half = ScoreVotes(n=3, meta_role="meta")
    assert found(half, REPLIES, 1.0, -2.0, 0.5).values == (8.0, 6.0, 8.0), "the two others, 6 and 8 points"
    assert found(ScoreVotes(n=3, meta_role="meta", kept=3), REPLIES, 1.0, -2.0, 0.5).values == (10.0, 15.0, 10.0)
    assert kept_by([9.0, 1.0, 1.0], [{}, {"a": 1}, {"a": 2}], 1) == [1], "an unreadable reply is never kept"
    for settings in ({"kept": 2}, {"kept": 9, "meta_role": "meta"}):
        with pytest.raises(ValidationError, match="it is at most n, and needs a meta_role"):
            ScoreVotes(n=8, **settings)


def test_ties_and_winners_that_no_reply_names_are_reported() -> None:
    assert found(ScoreVotes(n=2), [{"a": 1, "b": 2}, {"a": 2, "b": 1}]).statistics["ties"] == 1.0
    second = [{"a": 5, "b": 4, "c": 0}, {"a": 0, "b": 4, "c": 5}]
    result = found(ScoreVotes(n=2), second)
    assert result.statistics["unnamed"] == 1.0 and result.values == (5.0, 5.0)
