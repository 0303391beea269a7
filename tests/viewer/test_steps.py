"""The table of steps, sorted by its columns."""

import pytest

from posttrain.errors import UserError
from posttrain.viewer.steps import table

METRICS = [
    {"step": 1, "stage": "sft", "loss": 2.0},
    {"step": 2, "stage": "rl", "reward": 0.25, "solved": 0.5, "kl/reference": 0.5, "sampled_nll": 1.0, "odd": 3.0},
    {"step": 3, "stage": "rl", "reward": 0.75, "solved": 0.25, "kl/reference": float("nan")},
]
TIMING = {2: {"step": 2, "seconds_total": 1.5}}


def steps(sort: str, rising: bool = False) -> list[int]:
    return [row["step"] for row in table(METRICS, TIMING, set(), sort=sort, rising=rising)["rows"]]


def test_steps_without_the_number_come_last_either_way() -> None:
    assert steps("step") == [3, 2, 1] and steps("step", rising=True) == [1, 2, 3]
    assert steps("reward") == [3, 2, 1] and steps("reward", rising=True) == [2, 3, 1]
    assert steps("solved") == [2, 3, 1]
    assert steps("kl/reference")[0] == steps("kl/reference", rising=True)[0] == 2


def test_columns_are_those_with_values() -> None:
    found = table(METRICS, TIMING, {2, 3})
    assert [column["key"] for column in found["columns"]] == [
        *("step", "solved", "reward", "loss", "sampled_nll", "kl/reference", "seconds_total")
    ]
    rows = {row["step"]: row for row in found["rows"]}
    assert rows[2]["cells"] == ["50.0 %", "0.250", "", "1.000", "0.500", "1.500"]
    assert rows[1]["cells"] == ["", "", "2.000", "", "", ""]
    assert [rows[step]["recorded"] for step in (1, 2, 3)] == [False, True, True]


def test_a_column_that_is_not_there_is_refused() -> None:
    with pytest.raises(UserError, match=r"sort must be one of step, solved, reward.*got 'entropy'"):
        table(METRICS, TIMING, set(), sort="entropy")
