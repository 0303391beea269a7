"""Suites of tests for the generated functions, each with whether it is right, decided by running it in this process."""

from collections.abc import Iterator
from random import Random
from typing import Any

from posttrain.datasets.call_inputs import boundary_inputs, random_inputs
from posttrain.datasets.faulty_functions import NAME, compiled, constants, outcome
from posttrain.types import Task

DRAWN = 17
"""Suites of a task."""
MOST = 40
"""Tests of one."""


def suites_of(task: Task) -> Iterator[tuple[bool, str]]:
    """Drawn suites: some tests from few or many inputs, and in a third one result that is wrong."""
    rng = Random(f"suite cases:{task.key}")
    right = [compiled(source) for source in task.fields["correct"]]
    wrong = [compiled(source) for source in task.fields["wrong"]]
    domain = tuple(task.fields["domain"])
    pool = boundary_inputs(domain, constants(task.fields["correct"][0]), MOST, rng)
    pool = list(dict.fromkeys([*pool, *random_inputs(domain, MOST, rng), *_killing(task)]))
    inputs = {text: _of(text) for text in pool}
    results = {text: outcome(right[1], x) for text, x in inputs.items()}
    for _ in range(DRAWN):
        own = rng.sample(pool, min(rng.choice((2, 5, 10, 20, 40, 80)), len(pool)))
        tests = {text: results[text][1] for text in own}
        if rng.random() < 1 / 3:
            tests[rng.choice(own)] += rng.choice((-1, 1))
        kills = [any(_differs(copied, inputs[text], tests[text]) for text in own) for copied in wrong]
        refuses = any(_differs(solution, inputs[text], tests[text]) for solution in right for text in own)
        yield all(kills) and not refuses, "".join(f"assert {NAME}({text}) == {tests[text]!r}\n" for text in own)


def _killing(task: Task) -> list[str]:
    """The inputs of the demonstration."""
    tests = task.demonstrations[0].strip().split("\n")
    return [test.removeprefix(f"assert {NAME}(").rpartition(") == ")[0] for test in tests]


def _of(text: str) -> Any:
    """A number, or a list of numbers."""
    return [int(own) for own in text[1:-1].split(",") if own] if text.startswith("[") else int(text)


def _differs(function: Any, x: Any, expected: Any) -> bool:
    found = outcome(function, x)
    return bool(found[0] == "raised" or found[1] != expected)
