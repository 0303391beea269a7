"""Answers under principles: who writes, under what, and what is learned."""

import asyncio
from typing import Any

import pytest

from posttrain.components.pairings.best_and_lower import BestAndLower
from posttrain.components.rewards.regex import Regex
from posttrain.components.selections.principled import Principled, principles_of, under
from posttrain.datasets.coding_preferences import PRINCIPLES
from posttrain.errors import AlarmStop, UserError
from posttrain.types import Message, Task
from tests.builders import ScriptedSampler

OWN = {"preference": "style", "principles": ["Neat.", "Short."]}
TASKS = [Task(key=str(i), prompt=f"{i}:\n", fields=OWN) for i in range(8)]


def measured(selection: Principled, *tasks: Task, roles: tuple[str, ...] = ("policy",)) -> Any:
    return asyncio.run(selection.measure(tasks, {role: ScriptedSampler(role) for role in roles}))


def test_pairs_are_of_the_task_without_its_principle() -> None:
    selection = Principled(pairing=BestAndLower(), reward=Regex(pattern="[a-m]$"))
    found = selection.choose(TASKS, measured(selection, *TASKS))
    task = found.tasks[0]
    assert task.prompt in {t.prompt for t in TASKS} and len(task.preferences) == 1
    writers = {origin["writer"] for t in found.tasks for origin in t.fields["origin"]}
    assert writers == {"policy: Neat.", "policy: Short."}


def test_writers_are_drawn_without_replacement_and_differ_between_tasks() -> None:
    roles = tuple("abcdef")
    selection = Principled(pairing=BestAndLower(), reward=Regex(pattern="[a-m]$"), writers=roles, n=4)
    found = selection.choose(TASKS, measured(selection, *TASKS, roles=roles))
    pairs = [[origin["writer"][0] for origin in task.fields["origin"]] for task in found.tasks]
    assert all(first != second for first, second in pairs) and len({name for pair in pairs for name in pair}) > 2


def test_principles_of_the_preference_where_a_task_has_none() -> None:
    assert principles_of(Task(key="t", prompt="P", fields={"preference": "style"})) == PRINCIPLES["style"]
    with pytest.raises(UserError, match=r"no principles.*did you mean 'style'"):
        principles_of(Task(key="t", prompt="P", fields={"preference": "styl"}))


def test_a_principle_is_the_system_message_of_a_chat() -> None:
    chat = Task(key="t", prompt=(Message(role="user", content="Hi"),))
    assert under(chat, "Neat.").prompt[0] == Message(role="system", content="Neat.")
    assert under(TASKS[0], "Neat.").prompt == "Neat.\n0:\n"


def test_where_all_answers_are_rated_the_same_the_run_stops() -> None:
    selection = Principled(pairing=BestAndLower(), reward=Regex(pattern="."), skip=1, first=2)
    rows = measured(selection, *TASKS)
    assert rows[0] is None and rows[3] is None
    with pytest.raises(AlarmStop, match="no pair of any of 2 tasks: 2 without"):
        selection.choose(TASKS, rows)
