"""The verifier of puzzles accepts the solution in any order and wording, and nothing else."""

import pytest

from posttrain.components.rewards.knights import Knights
from posttrain.types import Task
from tests.components.rewards.judging import judge

TASK = Task(key="k", prompt="Who is what?", answer="x", fields={"kinds": {"A": "knave", "B": "knight", "C": "knave"}})


@pytest.mark.parametrize(
    "text",
    [
        "A knave, B knight, C knave",
        "C is a knave, A is a knave and B is a Knight.",
        "**B**: knight, **A**: knave, **C**: knave",
        "B = knight; C = knave; A = knave; A = knave",
    ],
)
def test_the_solution_in_any_form(text: str) -> None:
    assert judge(Knights(), f"<answer>{text}</answer>", TASK).value == 1.0


@pytest.mark.parametrize(
    "text",
    [
        "A knave, B knight",
        "A knave, B knight, C knight",
        "A knave, B knight, C knave, C knight",
        "A knave, B knight, C knave, D knave",
    ],
)
def test_anything_else_is_wrong(text: str) -> None:
    score = judge(Knights(wrong=-0.5, missing=-1.0), f"<answer>{text}</answer>", TASK)
    assert (score.value, score.status) == (-0.5, "wrong")


def test_no_assignment_is_missing_and_no_puzzle_an_error() -> None:
    assert judge(Knights(missing=-1.0), "<answer>who knows</answer>", TASK).value == -1.0
    assert judge(Knights(), "A knave", Task(key="x", prompt="?")).status == "error"
