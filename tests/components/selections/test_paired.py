"""The selection that makes pairs by a rule; the rules have tests of their own in ``tests/components/pairings``."""

import asyncio
from typing import Any

import pytest

from posttrain.components.pairings.bands import Bands
from posttrain.components.pairings.extremes import Extremes
from posttrain.components.pairings.fields_differ import FieldsDiffer
from posttrain.components.pairings.ranks import Ranks
from posttrain.components.rewards.match import Match
from posttrain.components.rewards.rating import Rating
from posttrain.components.selections.paired import Paired
from posttrain.errors import AlarmStop, UserError
from posttrain.methods.preference.dpo import dpo
from posttrain.recipes.changes import preference_of
from posttrain.recipes.overrides import override
from posttrain.types import Rated, Task
from tests.builders import ScriptedSampler

TASK = Task(key="k", prompt="2+2=", answer="4", demonstrations=("act: 1",))


def measured(selection: Paired, *tasks: Task) -> Any:
    return asyncio.run(selection.measure(tasks, {"policy": ScriptedSampler("policy")}))


def test_from_the_command_line() -> None:
    rule = "{kind: paired, pairing: {kind: first_pit, n: 8}, reward: match}"
    selection = preference_of(override(dpo(), [f"dpo.selection={rule}"])).selection
    assert isinstance(selection, Paired) and selection.writes == {"preferences"} and selection.gives == {"margin"}


def test_the_pairs_take_the_place_of_those_of_the_data_and_reasons_are_counted() -> None:
    selection = Paired(pairing=FieldsDiffer(fields=("act",)), reward=Match(), n=2)
    other = Task(key="l", prompt="3+3=", answer="6")
    found = selection.choose([TASK, other], measured(selection, TASK, other))
    [task] = found.tasks
    assert task.preferences[0].chosen == "act: 1" and task.preferences[0].fields["differs"] == "unreadable"
    assert task.fields["origin"][0] == {"writer": "data"}
    assert found.summary == "1 pairs by 'fields_differ' from 1 of 2 tasks; 1 without: the reference lacks a field"


def test_without_any_pair_the_run_stops() -> None:
    selection = Paired(pairing=Extremes(), reward=Match(), n=3)
    with pytest.raises(AlarmStop, match="no pair of any of 1 tasks: 1 without: all rollouts score the same"):
        selection.choose([TASK], measured(selection, TASK))


def test_rated_texts_in_place_of_rollouts() -> None:
    """Ranks are those of the data; the margin is the reward's, here the rating itself."""
    task = Task(key="k", prompt="P", rated=(Rated(completion="a", rating=1.0), Rated(completion="b", rating=3.0)))
    selection = Paired(pairing=Ranks(), reward=Rating(), n=0)
    [chosen] = selection.choose([task], measured(selection, task)).tasks
    [pair] = chosen.preferences
    assert (pair.chosen, pair.rejected, pair.fields["margin"]) == ("b", "a", 2.0)
    assert pair.fields["origin"][0] == {"writer": "data", "sample": 1, "value": 3.0}
    with pytest.raises(UserError, match="columns named completion and rating"):
        measured(selection, TASK)


def test_a_column_that_the_rule_reads_must_be_there() -> None:
    selection = Paired(pairing=Bands(field="ranked"), reward=Match())
    task = Task(key="k", prompt="P", fields={"ranks": []})
    with pytest.raises(UserError, match=r"task k: the rule 'bands' reads the column 'ranked'.*did you mean 'ranks'"):
        measured(selection, task)


def test_tasks_before_and_after_the_part_that_is_used_are_left_out() -> None:
    tasks = [Task(key=str(i), prompt=f"{i}=", demonstrations=("act: 1",)) for i in range(4)]
    selection = Paired(pairing=FieldsDiffer(fields=("act",)), reward=Match(), n=1, skip=1, first=2)
    found = measured(selection, *tasks)
    assert found[0] is None and found[3] is None
    assert [task.key for task in selection.choose(tasks, found).tasks] == ["1", "2"]
