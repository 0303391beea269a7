from dataclasses import replace

import pytest

from posttrain.components.tasks.arithmetic import Arithmetic
from posttrain.components.tasks.tagged import Tagged
from posttrain.components.tasks.worked_solutions import WorkedSolutions
from posttrain.errors import UserError
from posttrain.types import Task


def test_thoughts_and_answer_are_put_in_tags_and_nothing_else_changes() -> None:
    plain = Arithmetic(size=50)
    for before, after in zip(plain.load(), Tagged(tasks=plain).load(), strict=True):
        working = before.demonstrations[0].partition("\n####")[0].strip()
        assert after.demonstrations == (f"<think>{working}</think><answer>{before.answer}</answer>",)
        assert replace(after, demonstrations=before.demonstrations) == before


def test_without_a_mark_the_answer_is_the_tasks() -> None:
    tagged = Tagged(tasks=Arithmetic(size=1), tags=("t", "a"))
    assert tagged._in_tags(Task(key="k", prompt="?", answer="7"), " it is 7") == "<t>it is 7</t><a>7</a>"
    with pytest.raises(UserError, match="task k: the demonstration has no '#### answer'"):
        tagged._in_tags(Task(key="k", prompt="?"), "it is 7")


def test_pairs_are_put_in_tags_too() -> None:
    [before] = WorkedSolutions(size=1).load()
    [after] = Tagged(tasks=WorkedSolutions(size=1)).load()
    [plain], [pair] = before.preferences, after.preferences
    assert pair.chosen == after.demonstrations[0]
    thoughts, _, answer = plain.rejected.partition("\n#### ")
    assert pair.rejected == f"<think>{thoughts.strip()}</think><answer>{answer}</answer>"


def test_with_one_tag_the_answer_is_the_last_line() -> None:
    tagged = Tagged(tasks=Arithmetic(size=1), tags=("think",))
    [task], [plain] = tagged.load(), Arithmetic(size=1).load()
    thoughts, answer = plain.demonstrations[0].split("####")
    assert task.demonstrations == (f"<think>{thoughts.strip()}</think>\n{answer.strip()}",)
    assert "<think>...</think>\n..." in tagged.describe()
