"""Strengths of tasks."""

from typing import Any

import pytest
from pydantic import ValidationError

from posttrain.components.tasks.ideas import Ideas
from posttrain.components.tasks.steered import Steered


def drawn(**settings: Any) -> list[Any]:
    return [task.fields["eps"] for task in Steered(tasks=Ideas(size=200), **settings).load()]


def test_what_is_drawn() -> None:
    one = drawn()
    assert {tuple(eps[0]) for eps in one} == {(1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0)}
    assert one == drawn() and one != drawn(seed=1)
    assert {sum(eps[0]) for eps in drawn(draw="signed")} == {1.0, -1.0}
    joint = [x for eps in drawn(draw="joint") for x in eps[0]]
    assert -1 <= min(joint) < -0.9 and 0.9 < max(joint) <= 1 and len(set(joint)) == 600
    assert set(drawn(draw="planned")) == {"planned"}
    rows = ((1.0, 0.0, 0.0), (0.0, 0.5, 0.0))
    assert drawn(draw="rows", rows=rows)[0] == [list(row) for row in rows]
    task = Steered(tasks=Ideas(size=1)).load()[0]
    assert task.fields["eps"][0][["novelty", "feasibility", "effectiveness"].index(task.domain)] == 1.0


@pytest.mark.parametrize("settings", [{"draw": "rows"}, {"rows": ((1.0, 0.0, 0.0),)}, {"draw": "rows", "rows": ((1,),)},
                                      {"draw": "rows", "rows": ((2.0, 0.0, 0.0),)}])  # fmt: skip
def test_rows_that_do_not_fit(settings: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Steered(tasks=Ideas(size=1), **settings)
