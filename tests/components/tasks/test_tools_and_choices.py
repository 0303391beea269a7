"""Generated requests and questions are right by construction, and in a second way."""

import json
import re

import pytest

from posttrain.components.rewards.choice import Choice
from posttrain.components.rewards.tool_calls import ToolCalls
from posttrain.components.tasks.choices import Choices
from posttrain.components.tasks.tool_requests import LEVELS, WORDS, ToolRequests
from tests.components.rewards.judging import judge


@pytest.mark.parametrize("level", LEVELS)
def test_the_calls_are_what_the_prompt_requests(level: int) -> None:
    """The prompt alone, read by another program, gives the answer; every tool is offered with its parameters."""
    for task in ToolRequests(size=1000, level=level).load():
        tools, asked = re.fullmatch(r"Tools: (.*)\nDo: (.*)\n", str(task.prompt)).groups()  # type: ignore[union-attr]
        offered = {name: own.split(", ") if own else [] for name, own in re.findall(r"(\w+)\(([^)]*)\)", tools)}
        assert len(offered) == LEVELS[level][0]
        calls = []
        for request in asked.split("; ") if asked != "nothing" else []:
            name, *rest = request.split()
            own = dict(zip(rest[::2], map(int, rest[1::2]), strict=True))
            assert list(own) == offered[name]
            calls.append({"name": name, "parameters": own})
        assert calls == task.fields["calls"] and len(calls) <= LEVELS[level][2]
        if calls:
            assert [json.loads(line) for line in (task.answer or "").splitlines()] == calls


def test_the_right_demonstrations_are_as_many_as_set() -> None:
    reward = ToolCalls()
    for share in (0.0, 0.2, 1.0):
        tasks = ToolRequests(size=300, level=3, none=0.0, right=share).load()
        right = sum(judge(reward, task.demonstrations[0], task).status == "ok" for task in tasks)
        assert abs(right / 300 - share) < 0.1
    tasks = ToolRequests(size=200, none=1.0).load()
    assert all(judge(reward, task.demonstrations[0], task).value == 1.0 for task in tasks)


@pytest.mark.slow
def test_every_word_is_one_that_the_model_has() -> None:
    """Digits aside, nothing is spelt letter by letter."""
    for task in ToolRequests(size=200, level=5).load():
        rest = task.demonstrations[0]
        for word in sorted(WORDS, key=len, reverse=True):
            rest = rest.replace(word, "")
        assert re.fullmatch(r"[\d\n}]*", rest), rest


def test_the_answer_is_the_only_option_that_the_sum_gives() -> None:
    reward = Choice(extract=("hashes", "boxed"))
    for task in [*Choices(size=1000).load(), *Choices(size=50, seed=1, boxed=True).load()]:
        question, options_line, _ = str(task.prompt).split("\n")
        result = sum(map(int, question.removeprefix("Q: ").split("+")))
        words = options_line.split()
        options = dict(zip(words[::2], words[1::2], strict=True))
        assert [letter for letter, digits in options.items() if str(result % 10) in digits] == [task.answer]
        assert sorted("".join(options.values())) == list("0123456789")
        assert list(options.values()) == task.fields["options"]
        assert judge(reward, task.demonstrations[0], task).value == 1.0
    levels = {task.domain for task in Choices(size=200, level=(2, 3)).load()}
    assert levels == {"level 2", "level 3"}
