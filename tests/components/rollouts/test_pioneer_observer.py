"""Two answers to a question, the second after reading the first, both rewarded for both."""

import asyncio
from dataclasses import replace

import pytest
from pydantic import ValidationError

from posttrain.components.rewards import failure
from posttrain.components.rollouts.pioneer_observer import PioneerObserver
from posttrain.types import Group, Score, Task
from tests.components.rollouts.test_verified import Writer

TASK = Task(key="t", prompt="q:", answer="4")
SCORES = {"one": Score(value=0.25, status="wrong", answer="a"), "two": Score(value=1.0, status="ok", answer="b")}


def collect(rollout: PioneerObserver, of: Task = TASK) -> tuple[list[Group], list[str], list[str]]:
    scored: list[str] = []

    async def scorer(group: Group) -> Group:
        scored.extend(t.segments[0].text + t.completion for t in group)
        scores = [SCORES.get(t.completion, failure("unknown")) for t in group]
        return replace(group, trajectories=tuple(t.scored(s) for t, s in zip(group, scores, strict=True)))

    pioneer, observer = Writer(["one", "two", "three"]), Writer(["two", "one", "one"])
    groups = asyncio.run(rollout.collect_scored(of, {"policy": pioneer, "observer": observer}, scorer))
    return groups, observer.read, scored


def test_the_observer_reads_question_and_answer_and_is_scored_on_the_question_alone() -> None:
    groups, read, scored = collect(PioneerObserver(n=2))
    assert read == ["q:one\nq:", "q:two\nq:"]
    assert scored == ["q:one", "q:two", "q:two", "q:one"]
    pioneers, observers = groups
    assert [t.segments[0].text for t in observers] == ["q:one\nq:", "q:two\nq:"], "it learns from what it read"
    assert [t.learners for t in (*pioneers, *observers)] == [{"policy"}] * 2 + [{"observer"}] * 2
    assert [t.sample for t in observers] == [0, 1]


def test_both_get_the_sum_and_keep_their_own_verdict() -> None:
    (pioneers, observers), _, _ = collect(PioneerObserver(n=2))
    for pair in zip(pioneers, observers, strict=True):
        assert [t.score.value for t in pair if t.score] == [1.25, 1.25]
    assert [(t.score.status, t.score.answer) for t in pioneers if t.score] == [("wrong", "a"), ("ok", "b")]
    assert [(t.score.status, t.score.answer) for t in observers if t.score] == [("ok", "b"), ("wrong", "a")]
    [first, _] = [t.score for t in observers if t.score]
    assert (first.parts["pioneer"].value, first.parts["observer"].value) == (0.25, 1.0)


def test_a_failed_score_fails_the_pair() -> None:
    (pioneers, observers), _, _ = collect(PioneerObserver(n=3))
    assert [t.score.status for t in (pioneers.trajectories[2], observers.trajectories[2]) if t.score] == ["error"] * 2
    assert observers.trajectories[2].score is not None
    assert "the pioneer's answer: unknown" in observers.trajectories[2].score.explanation


def test_a_chat_stays_a_chat() -> None:
    of = Task(key="t", prompt=({"role": "system", "content": "s"}, {"role": "user", "content": "q"}))
    _, read, _ = collect(PioneerObserver(n=1), of)
    assert read == ["system: s\nuser: q\none\nq\n"]


def test_a_prompt_must_show_the_answer_after_the_question() -> None:
    with pytest.raises(ValidationError, match="prompt must have"):
        PioneerObserver(prompt="{answer}{problem}")
