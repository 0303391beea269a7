"""Bands of lengths, and shorter tasks that were never solved."""

import asyncio
from typing import Any

import pytest
from pydantic import ValidationError

from posttrain.components.rewards.regex import Regex
from posttrain.components.selections.by_length import ByLength
from posttrain.types import Task
from tests.builders import ScriptedSampler

TASKS = [Task(key=key, prompt="p") for key in "abcdef"]
ROWS = [
    {"length": 5, "solved": 0.0},
    {"length": 10, "solved": 0.125},
    {"length": 10, "solved": None},
    {"length": 11, "solved": None},
    {"length": 30, "solved": None},
    {"length": 31, "solved": None},
]


def kept(**settings: Any) -> str:
    return "".join(task.key for task in ByLength(reward=Regex(pattern="x"), **settings).choose(TASKS, ROWS).tasks)


def test_a_band_excludes_its_lower_end_and_has_its_upper_end() -> None:
    assert kept(longest=10) == "abc", "the first phase"
    assert kept(above=10, longest=30, again=False) == "de"
    assert kept(above=10) == "adef", "without an upper limit, and with the one that no rollout solved"


def test_only_accuracy_zero_returns() -> None:
    assert kept(above=10, longest=30) == "ade"
    summary = ByLength(reward=Regex(pattern="x"), above=10, longest=30).choose(TASKS, ROWS).summary
    assert summary == (
        "2 of 6 tasks have a prompt of more than 10 and at most 30 tokens; 1 of 3 shorter ones return, none of whose 8 "
        "rollouts was correct"
    )


def test_only_shorter_tasks_are_sampled_by_the_base_model() -> None:
    """The scripted tokenizer has one id for each byte and one before them."""
    tasks = [Task(key="short", prompt="1234"), Task(key="long", prompt="12345678")]
    base = ScriptedSampler("base")
    rule = ByLength(reward=Regex(pattern="[a-z]"), above=5, n=3)
    measured = asyncio.run(rule.measure(tasks, {"base": base}))
    assert measured == [{"length": 5, "solved": 1.0}, {"length": 9, "solved": None}]
    assert len(base.completions) == 3 and rule.roles == {"base"}


def test_an_empty_band_is_refused() -> None:
    with pytest.raises(ValidationError, match="no prompt has more than 10 and at most 10 tokens"):
        ByLength(reward=Regex(pattern="x"), above=10, longest=10)
