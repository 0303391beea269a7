"""Formulas in words, in signs, and as the rows of a test bench."""

from itertools import product

from posttrain.components.tasks.circuits import Circuits, Formula, in_signs, in_words, rows_of

FORMULA: Formula = (("", False, "a"), ("and", True, "b"), ("or", False, "c"))


def test_one_by_hand() -> None:
    assert in_words(FORMULA) == "a and not b then or c"
    assert in_signs(FORMULA) == "(a & ~b) | c"
    assert rows_of(FORMULA) == ["000 0", "001 1", "010 0", "011 1", "100 1", "101 1", "110 0", "111 1"]


def test_rows_are_what_the_signs_say() -> None:
    """Python reads the formula in its own way: its signs are Verilog's, and not is the last bit's complement."""
    for task in Circuits(size=60).load():
        formula = str(task.answer).split("assign y = ")[1].split(";")[0]
        for (a, b, c), row in zip(product((0, 1), repeat=3), task.fields["rows"], strict=True):
            assert row == f"{a}{b}{c} {eval(formula, {'a': a, 'b': b, 'c': c}) & 1}", formula


def test_thoughts_can_be_left_out() -> None:
    (task,) = Circuits(size=1, reasoned=False).load()
    assert task.demonstrations[0].startswith("<think>-</think>")
