"""Laws of the selections, for every member on arrival."""

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest

from posttrain.components.pairings.best_and_lower import BestAndLower
from posttrain.components.rewards.regex import Regex
from posttrain.components.rewards.reward_model import RewardModel
from posttrain.components.selections import Selection
from posttrain.components.selections.aspect_pairs import AspectPairs
from posttrain.components.selections.balanced import Balanced
from posttrain.components.selections.by_length import ByLength
from posttrain.components.selections.by_level import ByLevel
from posttrain.components.selections.by_outcome import ByOutcome
from posttrain.components.selections.by_visits import ByVisits
from posttrain.components.selections.explained import Explained
from posttrain.components.selections.paired import Paired
from posttrain.components.selections.principled import Principled
from posttrain.components.selections.refined_pairs import RefinedPairs
from posttrain.components.selections.rejected import Rejected
from posttrain.components.selections.valid_calls import ValidCalls
from posttrain.components.tasks.worked_solutions import WorkedSolutions
from posttrain.types import Task
from tests.builders import ScriptedSampler
from tests.conformance._members import members

TASKS = WorkedSolutions(size=30).load()
CALLS = [replace(task, answer=f"f(a={i})" if i % 3 else task.answer) for i, task in enumerate(TASKS)]

# Benches need a simulator: the laws are in their own test, tests/components/selections/test_written_benches.py.
# Rules that are optimised are a field of all tasks: tests/components/selections/test_optimized_rules.py.
APART = ("written_benches", "optimized_rules")
every_member = pytest.mark.parametrize(
    "selection", [m for m in members(Selection) if not any(n in m.id for n in APART)]
)


def able(selection: Any) -> Selection:
    """With a reward that can judge whatever there is, where it has one."""
    made: Any = replace(selection, reward=RewardModel()) if hasattr(selection, "reward") else selection
    if isinstance(made, Paired):
        return replace(made, pairing=BestAndLower(), n=4)
    if isinstance(made, Principled):
        return replace(made, pairing=BestAndLower())
    if isinstance(made, AspectPairs):
        return replace(made, weights={}, floors={}, aspects={"all": RewardModel()}, scale=(-1e9, 1e9))
    if isinstance(made, RefinedPairs):
        return replace(made, role=None, phases=(), slips=0.4)  # by chance: no scripted text is a greeting
    if isinstance(made, Explained):
        return replace(made, reward=Regex(pattern="[a-m]$"), marker="e")  # a letter that some random texts end with
    if isinstance(made, ByLevel):
        return replace(made, reward=Regex(pattern="[a-m]$"), levels=(2, 3), count=9)  # half of random letters
    if isinstance(made, Rejected):
        return replace(made, reward=Regex(pattern="[a-m]$"))
    if isinstance(made, ByOutcome):
        return replace(made, reward=Regex(pattern="[a-m]$"), wrong=1)
    if isinstance(made, ByLength):  # prompts of the scripted tokenizer have 8 to 12 tokens or so
        return replace(made, reward=Regex(pattern="[a-c]$"), above=11, longest=None, n=2, again=True)
    if isinstance(made, ByVisits):
        return replace(made, reward=Regex(pattern="[a-b]$"), delimiter="q", budget=6, threshold=2, unsolved=True)
    if isinstance(made, Balanced):
        return replace(made, reward=Regex(pattern="[a-m]$"), steps=None, temperatures=(0.5, 1.0), n=3, target=40)
    if isinstance(made, ValidCalls):
        return replace(made, judge=None)  # no scripted judge writes yes; its own tests have one that does
    return replace(made, threshold=0.7, general=0.0) if hasattr(made, "threshold") else made


def tasks_of(selection: Selection) -> list[Task]:
    if isinstance(selection, Principled):
        return [replace(task, fields={**task.fields, "preference": "style"}) for task in TASKS]
    if isinstance(selection, AspectPairs):
        return [replace(task, fields={**task.fields, "texts": ["a", "bb", "ccc"]}) for task in TASKS]
    return CALLS if isinstance(selection, ValidCalls) else TASKS


def look(selection: Selection, *key: str) -> Any:
    samplers = {role: ScriptedSampler(role, *key) for role in {"policy"} | selection.roles}
    return asyncio.run(selection.measure(tasks_of(selection), samplers))


@every_member
def test_what_is_seen_is_json_and_decides_alone(selection: Selection) -> None:
    selection = able(selection)
    tasks, seen = tasks_of(selection), look(selection)
    assert look(selection) == seen
    again = selection.choose(tasks, json.loads(json.dumps(seen, allow_nan=False)))
    assert again == selection.choose(tasks, seen)
    assert (look(selection, "other weights") != seen) == (not isinstance(selection, ValidCalls))


@every_member
def test_some_are_left_as_they_were_or_with_texts_that_say_where_they_are_from(selection: Selection) -> None:
    selection = able(selection)
    tasks = tasks_of(selection)
    chosen = selection.choose(tasks, look(selection))
    one_mode = getattr(selection, "use", "") == "modes"  # no scripted text thinks, and two modes are needed
    assert one_mode or 0 < len(chosen.tasks) <= len(tasks)
    assert list(chosen.tasks) != tasks
    assert chosen.summary
    by_key = {task.key: task for task in tasks}
    keys = [task.key for task in chosen.tasks]
    assert len(set(keys)) == len(keys)
    assert selection.orders or keys == [key for key in by_key if key in set(keys)]
    for task in chosen.tasks:
        before = by_key[task.key]
        if "origin" in task.fields:
            fields = {name: value for name, value in task.fields.items() if name != "origin"}
            texts: dict[str, Any] = {"preferences": (), "demonstrations": (), "rated": ()}
            assert replace(task, fields=fields, **texts) == replace(before, **texts) and task.fields["origin"]
            continue
        assert set(task.preferences) <= set(before.preferences)
        assert replace(task, preferences=()) == replace(before, preferences=())


@every_member
def test_what_is_written_takes_the_place_of_the_datas_own(selection: Selection) -> None:
    selection = able(selection)
    bare = (
        [replace(task, preferences=(), demonstrations=(), rated=()) for task in tasks_of(selection)]
        if selection.writes
        else []
    )
    samplers = {role: ScriptedSampler(role) for role in {"policy"} | selection.roles}
    measured = asyncio.run(selection.measure(bare, samplers)) if bare else []
    for task in selection.choose(bare, measured).tasks if bare else ():
        assert all(getattr(task, what.split()[0]) for what in selection.writes) and task.fields["origin"]
