import json

import pytest

from posttrain.components.experts import check_demonstrations
from posttrain.components.experts.stream import Stream
from posttrain.datasets.order import shuffled
from posttrain.errors import UserError
from posttrain.types import Task

POOL = [Task(key=str(i), prompt="?", demonstrations=("a", "b") if i == 1 else ("c",)) for i in range(4)]
"""Five demonstrations: the second task has two."""


def test_an_endless_order_in_which_every_epoch_has_each_once() -> None:
    state, seen = Stream(batch=2).start(), []
    for _ in range(5):
        state, shown = Stream(batch=2).choose(json.loads(json.dumps(state)), POOL, [], seed=3)
        seen += [(task.key, text) for task, text in shown]
    everything = sorted((task.key, text) for task in POOL for text in task.demonstrations)
    assert sorted(seen[:5]) == sorted(seen[5:]) == everything
    assert seen[:5] != seen[5:]
    assert state == {"batches": 5}


def test_the_order_is_that_of_the_sft_stage() -> None:
    listed = [(task.key, text) for task in POOL for text in task.demonstrations]
    _, shown = Stream(batch=3).choose({"batches": 4}, POOL, [], seed=7)
    assert [(task.key, text) for task, text in shown] == [listed[i] for i in shuffled(5, 3, 4, 7)]


def test_tasks_without_demonstrations() -> None:
    bare = [Task(key="k", prompt="?")]
    assert Stream().choose({"batches": 0}, bare, [], seed=0) == ({"batches": 0}, [])
    with pytest.raises(UserError, match=r"none of the 1 tasks has one; give a column named completion"):
        check_demonstrations(bare)
