"""Laws of the environments, for every member on arrival: new instances, random draws, contained failures.

The environments are also driven by words that they cannot know.
"""

import asyncio
import math
from collections.abc import Callable, Sequence
from random import Random
from typing import Any

import pytest

from posttrain.components.environments import (
    Environment,
    EnvironmentFailed,
    Instance,
    Observation,
    Outcome,
    Request,
    Verdict,
)
from posttrain.types import Task
from tests.conformance._members import each, members

every_member = pytest.mark.parametrize("environment", members(Environment))

TASK = Task(key="task", prompt="What is 6 times 7?", answer="42", fields={"cells": 4})
"""Of every environment at once."""
WORDS = ["forward", "42", "<<6*7>>", "<<", ">>", "", "\n", "no", "\0", "🙂\ud800", "(" * 3000, "<answer>", "f" * 10_000]


def actions(seed: int) -> list[str]:
    return Random(seed).choices(WORDS, k=12)


def opened(environment: Environment, seed: int) -> Any:
    """An instance, whose other player, where it has one, writes words that it cannot know either."""
    said = Random(f"other {seed}")

    async def write(request: Request) -> str:
        return said.choice(WORDS)

    return environment.open(TASK, Random(seed).random, None, write if environment.roles else None)


async def story(environment: Environment, said: Sequence[str], seed: int) -> list[Any]:
    """Everything that an environment gives while it is played."""
    async with opened(environment, seed) as instance:
        told: list[Any] = [instance.begin()]
        for action in said:
            told.append(await instance.step(action))
            if told[-1].done:
                break
        return [*told, instance.verdict(), instance.measures()]


def played(environment: Environment, said: Sequence[str], seed: int = 0) -> list[Any]:
    return asyncio.run(story(environment, said, seed))


@every_member
@each(seed=range(5))
def test_an_environment_is_a_function_of_task_actions_and_draws(environment: Environment, seed: int) -> None:
    environment.check([TASK])
    assert played(environment, actions(seed), seed) == played(environment, actions(seed), seed)


@every_member
def test_all_rollouts_begin_alike(environment: Environment) -> None:
    firsts = [played(environment, [], seed)[0] for seed in range(5)]
    assert all(first == firsts[0] for first in firsts)


@every_member
def test_instances_share_nothing(environment: Environment) -> None:
    """Two instances that are played alternately go as if each were alone."""

    async def interleaved() -> list[list[Any]]:
        async with opened(environment, 0) as a, opened(environment, 0) as b:
            told: list[list[Any]] = [[a.begin()], [b.begin()]]
            for pair in zip(actions(1), actions(2), strict=True):
                for instance, so_far, action in zip((a, b), told, pair, strict=True):
                    if not (isinstance(so_far[-1], Outcome) and so_far[-1].done):
                        so_far.append(await instance.step(action))
            return [[*so_far, w.verdict(), w.measures()] for w, so_far in zip((a, b), told, strict=True)]

    assert asyncio.run(interleaved()) == [played(environment, actions(1)), played(environment, actions(2))]


@every_member
@each(word=WORDS)
def test_no_word_breaks_an_environment(environment: Environment, word: str) -> None:
    _, *outcomes, verdict, _ = played(environment, [word] * 12)
    assert outcomes
    assert all(math.isfinite(o.reward) and isinstance(o.observation.text, str) for o in outcomes)
    assert verdict is None or math.isfinite(verdict.value)


class Broken(Instance):
    """Works, but for one method."""

    closed = 0

    def __init__(self, where: str, how: Callable[[], Any]) -> None:
        self.where, self.how = where, how

    def _at(self, method: str, value: Any) -> Any:
        return self.how() if method == self.where else value

    def begin(self) -> Observation:
        return self._at("begin", Observation())

    async def step(self, action: str) -> Outcome:
        return self._at("step", Outcome(done=True))

    def verdict(self) -> Verdict | None:
        return self._at("verdict", None)

    def measures(self) -> dict[str, float]:
        return self._at("measures", {})

    async def close(self) -> None:
        Broken.closed += 1
        return self._at("close", None)


class Faulty(Environment):
    """Makes broken instances."""

    def __init__(self, where: str, how: Callable[[], Any]) -> None:
        self.where, self.how = where, how

    def instance(self, task: Task, draw: Callable[[], float]) -> Instance:
        return self.how() if self.where == "instance" else Broken(self.where, self.how)


def raises(error: BaseException) -> Callable[[], Any]:
    def fail() -> Any:
        raise error

    return fail


@pytest.mark.parametrize("where", ["instance", "begin", "step", "verdict", "measures", "close"])
@pytest.mark.parametrize("error", [ZeroDivisionError("by hand"), SystemExit(3), RecursionError("deep")], ids=repr)
def test_every_failure_of_an_environment_is_contained_and_explained(where: str, error: BaseException) -> None:
    with pytest.raises(EnvironmentFailed, match=type(error).__name__):
        played(Faulty(where, raises(error)), ["x"])


@pytest.mark.parametrize(
    ("where", "value"),
    [
        ("begin", "text"),
        ("begin", Observation(text=None)),  # type: ignore[arg-type]
        ("step", None),
        ("step", ("text", 1.0, True)),
        ("step", Outcome(reward=math.nan)),
        ("step", Outcome(reward=math.inf)),
        ("step", Outcome(reward="much")),  # type: ignore[arg-type]
        ("verdict", 1.0),
        ("verdict", Verdict(value=math.nan, solved=True)),
        ("measures", {"a": math.nan}),
        ("measures", {"a": "b"}),
    ],
)
def test_what_is_no_answer_is_a_failure(where: str, value: Any) -> None:
    with pytest.raises(EnvironmentFailed):
        played(Faulty(where, lambda: value), ["x"])


def test_an_environment_is_closed_when_it_fails() -> None:
    before = Broken.closed
    with pytest.raises(EnvironmentFailed):
        played(Faulty("step", raises(ValueError("no"))), ["x"])
    assert Broken.closed == before + 1


def test_a_stop_of_the_run_is_no_failure_of_the_environment() -> None:
    for stop in (KeyboardInterrupt(), asyncio.CancelledError()):
        with pytest.raises(type(stop)):
            played(Faulty("step", raises(stop)), ["x"])
