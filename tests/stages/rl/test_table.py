"""The table of samples: what is ready for whom, choices, what is given back, and that it is kept whole."""

import pytest

from posttrain.errors import UserError
from posttrain.stages.rl.table import Table, balanced, by_age, groups_of


def filled(*lengths: int) -> Table:
    table = Table()
    for place, length in enumerate(lengths):
        table.add(prompt=place // 2, tokens=length, version=3 - place)
    return table


def test_a_row_is_ready_when_every_column_that_is_asked_for_is_there() -> None:
    table = Table()
    row = table.add(prompt="a")
    assert table.ready("reward", ("prompt",)) == [0]
    assert table.ready("learn", ("prompt", "reward")) == []
    assert table.ready("learn", ("no such column",)) == [], "an unknown column is not ready, and no error"
    table.put(row, reward=1.0)
    assert table.ready("learn", ("prompt", "reward")) == [0]


def test_each_consumer_takes_a_row_once_and_in_any_order() -> None:
    table = filled(1, 2, 3)
    assert table.take("reference", ("tokens",), 2) == [0, 1]
    assert table.take("reward", ("tokens",), 1, lambda _, ready, count: [ready[2]]) == [2]
    assert table.take("reward", ("tokens",), 2) == [0, 1], "the flags of another consumer are its own"
    assert table.ready("reference", ("tokens",)) == [2]


def test_too_few_rows_are_none_and_nothing_is_marked() -> None:
    table = filled(1, 2)
    assert table.take("learn", ("tokens",), 3) == []
    assert table.ready("learn", ("tokens",)) == [0, 1]


def test_what_a_consumer_took_and_did_not_use_is_given_back() -> None:
    table = filled(1, 2)
    assert table.take("learn", ("tokens",), 2) == [0, 1]
    table.give_back("learn", [1])
    assert table.take("learn", ("tokens",), 1) == [1]


def test_groups_are_of_one_prompt() -> None:
    """The source takes rows 1, 2 as a group of two where row 0 is not there: they are of two prompts."""
    table = Table()
    for prompt, done in (("a", False), ("a", True), ("b", True), ("b", True)):
        row = table.add(prompt=prompt)
        if done:
            table.put(row, reward=0.0)
    asked = ("prompt", "reward")
    assert table.take("learn", asked, 2, groups_of("prompt", 2)) == [2, 3]
    assert table.take("learn", asked, 2, groups_of("prompt", 2)) == []
    table.put(0, reward=1.0)
    assert table.take("learn", asked, 2, groups_of("prompt", 2)) == [0, 1]
    with pytest.raises(UserError, match="3 rows are not whole groups of 2"):
        table.take("learn", asked, 3, groups_of("prompt", 2))


def test_shares_have_about_as_many_tokens() -> None:
    """9 goes to the first part, 8 to the second, 3 to that with 8, 2 to the first: sums of 11 and 11."""
    assert filled(9, 2, 8, 3).take("learn", ("tokens",), 4, balanced("tokens", 2)) == [0, 1, 2, 3]
    assert filled(9, 8, 2, 3).take("learn", ("tokens",), 4, balanced("tokens", 2)) == [0, 2, 1, 3]
    with pytest.raises(UserError, match="3 rows cannot be shared by 2"):
        filled(1, 2, 3).take("learn", ("tokens",), 3, balanced("tokens", 2))


def test_the_oldest_versions_come_first() -> None:
    assert filled(1, 1, 1, 1).take("learn", ("tokens",), 2, by_age("version")) == [3, 2]


def test_a_table_is_kept_whole() -> None:
    table = filled(1, 2, 3)
    table.take("learn", ("tokens",), 1)
    table.remove([1])
    again = Table.unpacked(table.packed())
    assert again.packed() == table.packed()
    assert (again.ready("learn", ("tokens",)), again.ready("reward", ("tokens",)), len(again)) == ([2], [0, 2], 2)
    assert again.add(tokens=4) == 3, "numbers are not used twice"


def test_a_row_that_is_not_there_is_refused() -> None:
    with pytest.raises(UserError, match="no row 5"):
        Table().put(5, reward=1.0)
