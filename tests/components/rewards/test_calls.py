"""Calls are compared by names, typed arguments without order, and as a multiset."""

import asyncio

import numpy as np
import pytest

from posttrain.components.rewards import RewardContext
from posttrain.components.rewards.calls import Calls
from posttrain.grading.calls import NoCalls, difference, parse_calls, parse_reference
from posttrain.types import Group, Score, Segment, Task, Trajectory


def right(calls: str, reference: str) -> bool:
    return not difference(parse_calls(calls), parse_reference(reference))


@pytest.mark.parametrize(
    ("calls", "reference"),
    [
        ("f(b=2, a=1)", "f(a=1, b=2)"),
        ('{"name": "f", "arguments": {"b": 2, "a": 1}}', "f(a=1, b=2)"),
        ("[f(a=1), g(x='s')]", "g(x='s')\nf(a=1)"),
        ('{"name": "g", "arguments": {"x": "s"}}\n{"name": "f", "arguments": {"a": 1}}', "[f(a=1), g(x='s')]"),
        ("f(a=1)\nf(a=2)", "f(a=2)\nf(a=1)"),
        ("f(a=2)", "f(a=2.0)"),
        ("f(a='two  words ')", "f(a='two words')"),
        ("f(a=[1, {'b': 2}])", "f(a=[1, {'b': 2}])"),
        ("m.f(a=None, b=True)", "m.f(a=None, b=True)"),
        ("f(a=-1)", '[{"f": {"a": [-1, 2], "b": ["x", ""]}}]'),
        ("f(a=2, b='x')", '[{"f": {"a": [-1, 2], "b": ["x", ""]}}]'),
        ("f()", "f()"),
    ],
)
def test_what_is_right(calls: str, reference: str) -> None:
    assert right(calls, reference)


@pytest.mark.parametrize(
    ("calls", "reference"),
    [
        ("f(a='1')", "f(a=1)"),
        ("f(a=1.0)", "f(a=1)"),
        ("f(a=True)", "f(a=1)"),
        ("f(a=1)", "f(a=True)"),
        ("g(a=1)", "f(a=1)"),
        ("f(a=1)", "f(a=1, b=2)"),
        ("f(a=1, b=2)", "f(a=1)"),
        ("f(a=1)\nf(a=1)", "f(a=1)\nf(a=2)"),
        ("f(a=1)", "f(a=1)\nf(a=1)"),
        ("f(b='x')", '[{"f": {"a": [-1, 2], "b": ["x", ""]}}]'),
        ("f(a=3)", '[{"f": {"a": [-1, 2]}}]'),
        ("f(a='a b')", "f(a='ab')"),
        ("f(a=[1, 2])", "f(a=[2, 1])"),
    ],
)
def test_what_is_wrong(calls: str, reference: str) -> None:
    assert not right(calls, reference)


def test_parallel_calls_with_several_allowed_values_are_matched_as_a_whole() -> None:
    """The first call fits both wanted ones, the second only the first: each still finds one."""
    reference = '[{"f": {"a": [1, 2]}}, {"f": {"a": [1]}}]'
    assert right("f(a=1)\nf(a=2)", reference) and right("f(a=2)\nf(a=1)", reference)
    assert not right("f(a=2)\nf(a=2)", reference)


@pytest.mark.parametrize(
    "text",
    ["", "f", "1 + 1", "f(1)", "f(**{'a': 1})", "f(a=b)", "f(a=g())", "x = f(a=1)", "f(a=1, a=2)", "f(a=1",
     "(lambda: 1)()", "[]", "{}", "f(a=" + "(" * 5000, '{"name": 1, "arguments": {}}',
     '{"name": "f", "arguments": [1]}', "[" * 5000, "f(a=1)\n" * 100, "a" * 30_000],
)  # fmt: skip
def test_what_is_no_call(text: str) -> None:
    with pytest.raises(NoCalls):
        parse_calls(text)


def score(completion: str, answer: str, **settings: str | None) -> Score:
    t = Trajectory(
        task=Task(key="t", prompt="?", answer=answer),
        segments=(Segment(actor="policy", token_ids=np.arange(2), trained=True, text=completion),),
        stop_reason="stop",
    )
    (found,) = asyncio.run(Calls(**settings).score(Group(trajectories=(t,)), RewardContext()))  # type: ignore[arg-type]
    return found


def test_the_tag() -> None:
    assert score("<think>f(a=2)</think><call>f(a=1)</call>", "f(a=1)").value == 1.0
    assert score("f(a=1)", "f(a=1)").status == "wrong"
    assert score("f(a=1)", "f(a=1)", tag=None).status == "ok"
    for twice in ("<call>f(a=1)</call><call>f(a=1)</call>", "</call><call>f(a=1)", "<call>f(a=1)"):
        assert score(twice, "f(a=1)").status == "wrong"


def test_a_task_without_readable_calls_is_an_error() -> None:
    found = score("<call>f(a=1)</call>", "42")
    assert found.status == "error" and "'42'" in found.explanation
