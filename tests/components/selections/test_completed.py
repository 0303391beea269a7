"""A model's own completions become the recorded ones of a task, with their scores."""

import asyncio

import pytest

from posttrain.components.rewards.regex import Regex
from posttrain.components.selections.completed import Completed
from posttrain.errors import AlarmStop
from posttrain.types import Rated, Task
from tests.builders import ScriptedSampler

TASKS = [Task(key=f"t{i}", prompt=f"{i}+1=", rated=(Rated(completion="old", rating=9.0),)) for i in range(6)]
SELECTION = Completed(reward=Regex(pattern="[a-m]$"), n=2)


def test_completions_and_ratings_are_those_of_the_model() -> None:
    sampler = ScriptedSampler("policy")
    chosen = SELECTION.choose(TASKS, asyncio.run(SELECTION.measure(TASKS, {"policy": sampler})))
    written = {completion.text for completion in sampler.completions}
    assert chosen.tasks and all(len(task.rated) <= 2 for task in chosen.tasks)
    for task in chosen.tasks:
        for rated in task.rated:
            assert rated.completion in written and rated.rating == float(rated.completion[-1] in "abcdefghijklm")
        assert task.fields["origin"] == ["policy"] * len(task.rated)


def test_tasks_without_a_text_are_left_out() -> None:
    chosen = SELECTION.choose(TASKS[:2], [[], [["a", 1.0]]])
    assert [task.key for task in chosen.tasks] == ["t1"] and "1 of 2" in chosen.summary
    with pytest.raises(AlarmStop, match="none of 1"):
        SELECTION.choose(TASKS[:1], [[]])
