"""Pairs of demonstrations and fresh samples."""

import asyncio

from posttrain.components.selections.contrasted import Contrasted
from posttrain.types import Preference, Task
from tests.builders import ScriptedSampler

TASKS = [
    Task(key="a", prompt="p", demonstrations=("good", "other"), preferences=(Preference(chosen="x", rejected="y"),)),
    Task(key="b", prompt="p", demonstrations=("same",)),
    Task(key="c", prompt="p"),
    Task(key="d", prompt="p", demonstrations=("late",)),
]


def test_the_first_demonstration_is_preferred_to_samples_that_differ_from_it() -> None:
    chosen = Contrasted(n=2, first=3).choose(TASKS, [["bad", "worse"], ["same"], ["bad"]])
    [task] = chosen.tasks
    assert [(p.chosen, p.rejected) for p in task.preferences] == [("good", "bad"), ("good", "worse")]
    assert task.fields["origin"] == [{"chosen": "demonstration", "rejected": "policy"}] * 2
    assert "1 of 3 tasks" in chosen.summary and "1 do not, 1 have no demonstration" in chosen.summary


def test_samples_are_the_roles_own() -> None:
    sampler = ScriptedSampler("other")
    texts = asyncio.run(Contrasted(role="other", n=2, first=2).measure(TASKS, {"other": sampler}))
    assert [len(own) for own in texts] == [2, 2] and len(sampler.completions) == 4
