"""Spans of scores are given at tokens, without tokenizing again."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from posttrain.components.rewards import SpanRewards
from posttrain.stages.rl.credit import token_rewards
from posttrain.stages.rl.spans import with_span_rewards
from posttrain.types import Group, Score, Segment, Task, Trajectory

TASK = Task(key="t", prompt="p")


def models(*pieces: bytes) -> Any:
    """A policy whose tokens are these bytes, by id."""
    return {"policy": SimpleNamespace(tokenizer=SimpleNamespace(token_bytes=lambda token: pieces[token]))}


def segment(actor: str, ids: list[int], text: str) -> Segment:
    return Segment(actor=actor, token_ids=np.array(ids), trained=actor == "policy", text=text)


def placed(spans: tuple[tuple[int, int, float, str], ...], value: float, given: Any, *segments: Segment) -> Trajectory:
    score = Score(value=value, status="ok", spans=spans)
    rollout = Trajectory(task=TASK, segments=(segment("prompt", [0], "p"), *segments), stop_reason="stop", score=score)
    return with_span_rewards([Group(trajectories=(rollout,))], given)[0].trajectories[0]


WORDS = models(b"the", b" fox", b". ", b"It", b" runs.", b"")
TEXT = "the fox. It runs."
WRITTEN = segment("policy", [0, 1, 2, 3, 4, 5], TEXT)


def test_two_sentences_have_their_reward_at_their_last_tokens() -> None:
    """The first ends inside the token ". ", the second with the last one before the end token."""
    found = placed(((0, 8, 0.5, "a"), (9, 17, -0.5, "a")), 0.0, WORDS, WRITTEN)
    assert token_rewards(found, []).tolist() == [0.0, 0.0, 0.5, 0.0, -0.5, 0.0]
    fact = found.fact(SpanRewards)
    assert fact is not None and fact.span_rewards == ((2, 0.5), (4, -0.5))


def test_what_no_span_has_stays_at_the_last_token_and_the_sum_is_the_value() -> None:
    found = placed(((0, 8, 0.25, "a"),), 2.0, WORDS, WRITTEN)
    assert token_rewards(found, []).tolist() == [0.0, 0.0, 0.25, 0.0, 0.0, 1.75]


def test_a_later_span_replaces_one_of_its_part_at_the_same_token_and_parts_add() -> None:
    spans = ((0, 5, 1.0, "a"), (5, 6, 4.0, "a"), (0, 7, 8.0, "b"), (0, 3, 16.0, "b"))
    found = placed(spans, 29.0, WORDS, WRITTEN)
    assert token_rewards(found, []).tolist() == [16.0, 12.0, 0.0, 0.0, 0.0, 0.0]
    assert found.score is not None and found.score.value == 28.0, "what was replaced is not in the value"


def test_ends_are_clamped() -> None:
    found = placed(((0, 999, 1.0, "a"), (0, 0, 2.0, "b")), 3.0, WORDS, WRITTEN)
    assert token_rewards(found, []).tolist() == [2.0, 0.0, 0.0, 0.0, 0.0, 1.0]


def test_letters_of_several_tokens() -> None:
    """The letter is there with the last of its bytes."""
    two = models("é".encode()[:1], "é".encode()[1:], b"x")
    found = placed(((0, 1, 1.0, ""), (1, 2, 2.0, "")), 3.0, two, segment("policy", [0, 1, 2], "éx"))
    assert token_rewards(found, []).tolist() == [0.0, 1.0, 2.0]


def test_text_of_an_environment_belongs_to_the_token_before_it() -> None:
    given = models(b"ab", b"cd")
    segments = segment("policy", [0], "ab"), segment("environment", [7, 7], "SEEN"), segment("policy", [1], "cd")
    for end, token in ((2, 0), (4, 0), (6, 0), (7, 1), (8, 1)):
        found = placed(((0, end, 1.0, ""),), 1.0, given, *segments)
        assert token_rewards(found, []).tolist() == [float(token == 0), float(token == 1)], end


def test_without_spans_nothing_changes() -> None:
    found = placed((), 1.5, WORDS, WRITTEN)
    assert found.facts == () and token_rewards(found, []).tolist() == [0, 0, 0, 0, 0, 1.5]


@pytest.mark.parametrize("value", [0.1, -3.7, 1e3])
def test_random_spans_sum_to_the_value(value: float) -> None:
    rng = np.random.default_rng(int(abs(value)))
    for _ in range(200):
        spans = tuple((0, int(rng.integers(0, 20)), float(rng.integers(-4, 5)), str(rng.integers(2))) for _ in range(4))
        found = placed(spans, value, WORDS, WRITTEN)
        assert found.score is not None
        assert token_rewards(found, []).sum() == pytest.approx(found.score.value, abs=1e-3)
