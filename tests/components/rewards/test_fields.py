"""Labels of records, each by itself."""

import asyncio

import pytest

from posttrain.components.rewards import RewardContext
from posttrain.components.rewards.fields import Fields
from posttrain.errors import UserError
from posttrain.types import Group, Score, Task
from tests.components.pairings.given import rollout

REFERENCE = "evaluation: a\naction: 12\ntext: try again"


def score(text: str, answer: str | None = REFERENCE) -> Score:
    task = Task(key="t", prompt="P:", answer=answer)
    group = Group(key="t", trajectories=(rollout(task, text, 0.0, 0),))
    [found] = asyncio.run(Fields(fields=("evaluation", "action")).score(group, RewardContext()))  # type: ignore[arg-type]
    return found


@pytest.mark.parametrize(
    ("text", "value", "status"),
    [
        ("evaluation: a\naction: 12\ntext: other words", 1.0, "ok"),
        ('{"Evaluation": "a", "action": 12}', 1.0, "ok"),
        ("evaluation: a\naction: 1", 0.5, "wrong"),
        ("evaluation: a", 0.5, "wrong"),
        ("evaluation: \naction: ", 0.0, "wrong"),
        ("a 12", 0.0, "wrong"),
        ("", 0.0, "wrong"),
    ],
)
def test_by_hand(text: str, value: float, status: str) -> None:
    found = score(text)
    assert (found.value, found.status) == (value, status)
    assert set(found.parts) == {"evaluation", "action"}


def test_a_reference_without_a_field_is_an_error_and_is_refused_before() -> None:
    assert score("evaluation: a\naction: 1", "evaluation: a").status == "error"
    member = Fields(fields=("evaluation", "action"))
    member.check([Task(key="t", prompt="P:", answer=REFERENCE)])
    with pytest.raises(UserError, match="task t: the reference record has no 'action'; its fields: evaluation"):
        member.check([Task(key="t", prompt="P:", answer="evaluation: a")])
