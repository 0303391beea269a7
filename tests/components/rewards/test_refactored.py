"""Refactored functions get a point for each check, and cheats exactly what the sheet states."""

import importlib.util
from difflib import SequenceMatcher

import pytest

from posttrain.components.rewards.refactored import Refactored
from posttrain.components.tasks.refactorings import Refactorings
from posttrain.errors import UserError
from posttrain.grading.extracted_functions import open_checks
from posttrain.types import Task
from tests.components.rewards.judging import attempt, judge, score_all
from tests.components.rewards.programs import tier_for

SOURCE = "def f(a,b):\n c=a*3\n d=c+b\n return d-2\n"
GOLD = "def f(a,b):\n d = g(a, b)\n return d-2\n\ndef g(a, b):\n c=a*3\n d=c+b\n return d\n"
TASK = Task(
    key="task", prompt=SOURCE, answer=GOLD, fields={"source": SOURCE, "function": "f", "inputs": [[1, 2], [0, -5]]}
)
CASES = {
    "extracted": (GOLD, 3, 4),
    "a value that is returned": (GOLD.replace(" d=c+b\n return d\n", " return c+b\n"), 3, 4),
    "in a fence": (f"Here:\n```python\n{GOLD}```\nDone.", 3, 4),
    "copied": (SOURCE, 2, 3),
    "a function that nothing calls": (f"{SOURCE}\ndef g(a):\n c=a*3\n return c\n", 2, 3),
    "a call of an empty function": (f"{SOURCE.replace(' c=', ' g()' + chr(10) + ' c=')}\ndef g():\n pass\n", 2, 3),
    "a changed meaning": (GOLD.replace("d-2", "d-3"), 3, 3),
    "a dropped statement": (
        GOLD.replace(" d=c+b\n return d\n", " return c\n").replace("(a, b):\n c", "(a, b):\n c"),
        3,
        3,
    ),
    "a call that does not resolve": (GOLD.replace("= g(", "= h("), 1, 1),
    "a call with an argument too few": (GOLD.replace("g(a, b)\n r", "g(a)\n r"), 2, 2),
    "a name that is not defined": (SOURCE.replace("d-2", "e-2"), 1, 1),
    "syntax": (SOURCE.replace("):", ")"), 0, 0),
    "another function": ("def g(a):\n return a\n", 1, 1),
    "a return outside of a function": ("return 1\n" + SOURCE, 1, 1),
    "nothing": ("", 0, 0),
}
"""Completion, points of three checks, points of four."""


@pytest.mark.parametrize("name", CASES)
def test_points_by_hand(name: str) -> None:
    text, points, _ = CASES[name]
    score = judge(Refactored(), text, TASK)
    assert (score.value, score.status) == (points, "ok" if points == 3 else "wrong")
    assert judge(Refactored(partial=False), text, TASK).value == (points == 3)


def test_a_metric_against_the_input_would_prefer_copies() -> None:
    """The release's metric in its loop compares with the input; held-out accuracy here counts texts with all checks."""
    alike = {text: SequenceMatcher(None, SOURCE, text).ratio() for text in (SOURCE, GOLD)}
    assert alike[SOURCE] == 1.0 > alike[GOLD]
    assert [judge(Refactored(), text, TASK).status for text in (SOURCE, GOLD)] == ["wrong", "ok"]


@pytest.mark.slow
def test_results_are_a_fourth_check() -> None:
    reward = Refactored(execution=True, weakest=tier_for())
    reward.prepare()
    scores = score_all(reward, *(attempt(text, TASK) for text, _, _ in CASES.values()))
    assert [score.value for score in scores] == [points for _, _, points in CASES.values()]
    hanging = GOLD.replace(" d = g(a, b)\n", " d = g(a, b)\n while True: pass\n")
    assert judge(reward, hanging, TASK).value == 3
    forged = "import os\nos._exit(0)\n" + GOLD
    assert judge(reward, forged, TASK).value == 3


@pytest.mark.parametrize("parser", ["python", "tree_sitter"])
def test_generated_tasks_have_all_points_and_copies_two(parser: str) -> None:
    if importlib.util.find_spec("tree_sitter_python") is None and parser == "tree_sitter":
        pytest.skip("needs tree-sitter")
    checks = open_checks({"parser": parser})
    for level in range(1, 6):
        for task in Refactorings(size=40, level=level).load():
            source = task.fields["source"]
            own = [checks({"text": text, "source": source, "function": "f"}).values() for text in (task.answer, source)]
            assert [sum(values) for values in own] == [3, 2]


@pytest.mark.parametrize("text", ["(" * 5000, "f(" * 3000 + ")" * 3000, "-" * 16000 + "1", "\0", "\ud800", "x" * 20000])
def test_hostile_texts_are_wrong(text: str) -> None:
    score = judge(Refactored(), text, TASK)
    assert score.status == "wrong" and score.value <= 1


def test_tasks_that_cannot_be_scored_are_refused() -> None:
    for fields in ({}, {"source": 3}, {"source": SOURCE, "function": "f("}, {"source": ""}):
        bad = Task(key="bad", prompt="?", fields=fields)
        with pytest.raises(UserError, match="bad"):
            Refactored().check([bad])
        assert judge(Refactored(), GOLD, bad).status == "error"
    with pytest.raises(UserError, match="inputs"):
        Refactored(execution=True).check([Task(key="t", prompt="?", fields={"source": SOURCE})])
