"""Rules on the text of a program."""

import pytest

from posttrain.components.rewards.uses import Uses
from posttrain.grading.program_names import names_fault
from posttrain.types import Task
from tests.components.rewards.judging import attempt, score_all

RULE = {
    "define": ["kernel"],
    "call": [],
    "forbid": ["reference", "torch.matmul"],
    "imports": ["torch"],
    "function": "f",
}
KERNEL = "@kernel\ndef k(i, x, o):\n    o[i] = x[i]\n"
GOOD = f"{KERNEL}def f(x):\n    o = empty(x)\n    k[len(x)](x, o)\n    return o\n"


@pytest.mark.parametrize(
    "text",
    [
        GOOD,
        f"import torch\n{GOOD}",
        f"{KERNEL}def g(x, o):\n    k[3](x, o)\ndef f(x):\n    o = torch.empty(3)\n    g(x, o)\n    return o\n",
        GOOD.replace("@kernel", "@kernel(warps=4)").replace("k[len(x)](x, o)", "k(x, o)"),
    ],
)
def test_what_keeps_to_a_rule(text: str) -> None:
    assert names_fault(text, RULE) == ""


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("def f(x):\n    return reference(x)\n", "it names reference"),
        ("def f(x):\n    return x + x\n", "no function with the decorator kernel"),
        (f"{KERNEL}def f(x):\n    return x + x\n", "f calls no function with that decorator"),
        (f"{KERNEL}def f(x):\n    k\n    return x\n", "f calls no function with that decorator"),
        (f"{KERNEL}def g(x):\n    k[1](x, x)\ndef f(x):\n    return x\n", "f calls no function with that decorator"),
        (f"{GOOD}r = __builtins__\n", "which begins with _"),
        (f"{GOOD}y = getattr(empty, 'a')\n", "it names getattr"),
        (f"{GOOD}y = {{'reference': 1}}\n", "it names reference"),
        (f"{GOOD}from lib import reference as r\n", "it imports lib"),
        (f"{GOOD}from torch import reference as r\n", "it names reference"),
        (f"{GOOD}import os\n", "it imports os"),
        (f"{GOOD}y = torch.matmul(1, 2)\n", "it names torch.matmul"),
        (f"{GOOD}y = empty._items\n", "which begins with _"),
        (GOOD.replace("def f", "def g"), "no function f"),
        ("def f(", "no Python"),
        ("(" * 5000, "no Python"),
        ("", "no function f"),
    ],
)
def test_what_does_not(text: str, why: str) -> None:
    assert why in names_fault(text, RULE)


def test_names_that_must_be_called() -> None:
    rule = {**RULE, "define": [], "call": ["tl.load", "empty"]}
    text = "def f(x):\n    y = empty(x)\n    return {}\n"
    assert names_fault(text.format("tl.load(y)"), rule) == ""
    assert names_fault(text.format("y"), rule) == "f does not call tl.load"


def test_scores_are_by_the_last_block_and_the_task_names_the_function() -> None:
    reward, task = Uses(define=("kernel",)), Task(key="t", prompt="p", fields={"function": "g"})
    own = GOOD.replace("def f", "def g")
    texts = (own, f"So:\n```python\n{own}```\n", GOOD, "", "x" * 20_000)
    found = score_all(reward, *(attempt(text, task) for text in texts))
    assert [score.value for score in found] == [1.0, 1.0, 0.0, 0.0, 0.0]
    assert [score.status for score in found] == ["ok", "ok", "wrong", "wrong", "wrong"]
    assert "longer than" in found[4].explanation
    (broken,) = score_all(reward, attempt(own, Task(key="t", prompt="p", fields={"function": 3})))
    assert broken.status == "error"
