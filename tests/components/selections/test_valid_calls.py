import asyncio
from typing import Any

import pytest

from posttrain.components.selections.valid_calls import ValidCalls, tree_fault
from posttrain.errors import AlarmStop
from posttrain.types import Task

TOOLS = [
    {"name": "f", "required": ["a"], "optional": ["b"]},
    {"type": "function", "function": {"name": "g", "parameters": {"properties": {"x": {}}, "required": []}}},
]


def task(answer: str, tools: Any = TOOLS) -> Task:
    return Task(key=answer[:9], prompt="call", answer=answer, fields={"tools": tools})


@pytest.mark.parametrize("answer", ["f(a=1)", "f(a=1, b=2)\ng()", "g(x=[1])", '[{"f": {"a": [1, 2]}}]'])
def test_valid(answer: str) -> None:
    assert tree_fault(task(answer)) == ""


@pytest.mark.parametrize(
    ("answer", "fault"),
    [
        ("f(b=1)", "'f' lacks the argument 'a'"),
        ("f(a=1, c=1)", "'f' has no argument 'c'"),
        ("h()", "'h' is not among the tools"),
        ("42", "the answer has something that is no call"),
        ("", "the answer is empty"),
    ],
)
def test_faults(answer: str, fault: str) -> None:
    assert tree_fault(task(answer)) == fault


def test_without_tools_only_the_text_counts() -> None:
    assert tree_fault(task("h(z=1)", None)) == "" and "no list of functions" in tree_fault(task("f(a=1)", [1]))


class Judge:
    """Answers by the calls in the question, and counts the questions."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def write(self, prompt: str, n: int, sampling: Any) -> list[str]:
        self.asked.append(prompt)
        return ["Yes."] * (n - 1) + (["no, not that one"] if "b=2" in prompt else ["yes"])


def test_a_judge_reads_what_is_valid_and_every_round_must_be_yes() -> None:
    judge: Any = Judge()
    tasks = [task("f(a=1)"), task("f(a=1, b=2)"), task("h()")]
    selection = ValidCalls(judge="judge", rounds=3)
    measured = asyncio.run(selection.measure(tasks, {"judge": judge}))
    assert measured[0] == "" and measured[1].startswith("the judge 'judge' answered 'no, not") and len(judge.asked) == 2
    assert selection.roles == {"judge"} and not ValidCalls().roles
    chosen = selection.choose(tasks, measured)
    assert [t.answer for t in chosen.tasks] == ["f(a=1)"] and chosen.summary.startswith("1 of 3 tasks")


def test_no_valid_task_stops() -> None:
    with pytest.raises(AlarmStop, match=r"no task has valid calls.*'h' is not among the tools"):
        ValidCalls().choose([task("h()")], ["'h' is not among the tools"])
