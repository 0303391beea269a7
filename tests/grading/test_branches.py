"""Branch distances: the sheet's convention on programs by hand, and a second writing of it on random ones."""

import random

import pytest

from posttrain.errors import UserError
from posttrain.grading.branches import Run, credit, instrumented, run_of

NESTED = """
def f(a, b, c):
    if a == 12 and c > 3:
        for i in range(3):
            if not b >= a + 3 or c == 9:
                pass
            else:
                return 1 / (c - 5)
"""


def run(source: str, line: int, *inputs: object, ticks: int = 1000) -> Run:
    program = instrumented(source, "f", line)
    space: dict[str, object] = {}
    exec(program.code, space)
    return run_of(eval(program.call(inputs, ticks), space), program.guards)


@pytest.mark.parametrize(
    ("inputs", "nearest", "value"),
    [
        ((12, 20, 6), (0, 0), 1.0),
        ((12, 20, 5), (0, 0), 1.0),  # reached, then a division by zero
        ((12, 14, 6), (0, 2), (1 + 0.999 / 3) / 2),  # 1 short, and the other part was not evaluated
        ((10, 14, 6), (3, None), 0.999 / 4 / 2),  # 2 for a, and 1 for the part that was not evaluated
        ((12, 20, 2), (2, None), 0.999 / 3 / 2),
        ((12, 20, 9), (0, 1), (1 + 0.999 / 2) / 2),
        ((1, 2), (None, None), 0.0),
        (("x", 2, 3), (2, None), 0.999 / 3 / 2),
    ],
)
def test_guards_by_hand(inputs: tuple[object, ...], nearest: tuple[float | None, ...], value: float) -> None:
    found = run(NESTED, 8, *inputs)
    assert found.nearest == nearest and credit(found) == pytest.approx(value)
    assert found.reached == (value == 1.0)
    assert credit(found, "target") == (value == 1.0)
    assert credit(found, "passed") == pytest.approx(1.0 if found.reached else found.passed / 2)


def test_ends() -> None:
    assert run(NESTED, 8, 12, 20, 5).end == "ZeroDivisionError" and run(NESTED, 8, 1).end == "refused"
    loop = "def f(a):\n    while a:\n        if a == 7:\n            return 1\n"
    hung = run(loop, 4, 5, ticks=50)
    assert (hung.end, hung.reached, hung.nearest) == ("hung", False, (0, 2)) and 0.5 < credit(hung) < 1
    assert run(loop, 4, 7).reached


def test_the_smallest_distance_of_a_guard_counts() -> None:
    source = "def f(a):\n    for i in range(5):\n        if i == a:\n            x = 1\n"
    assert run(source, 4, 9).nearest == (5,) and run(source, 4, 3).reached


def test_random_guards_equal_a_second_writing() -> None:
    """Nested guards over integers, against loops over them; the value rises with guards, falls with the distance."""
    rng = random.Random(0)
    gaps = {"==": lambda a, b: abs(a - b), ">=": lambda a, b: b - a, "<=": lambda a, b: a - b}
    gaps |= {">": lambda a, b: b - a + 1, "<": lambda a, b: a - b + 1, "!=": lambda a, b: int(a == b)}
    for _ in range(150):
        guards = [(rng.choice([*gaps]), rng.randint(-9, 9)) for _ in range(rng.randint(1, 6))]
        names = "abcdef"[: len(guards)]
        lines = [f"def f({', '.join(names)}):"]
        for i, (op, bound) in enumerate(guards):
            lines.append(f"{'  ' * (i + 1)}if {names[i]} {op} {bound}:")
        lines.append(f"{'  ' * (len(guards) + 1)}return 1")
        program = instrumented("\n".join(lines), "f", len(lines))
        space: dict[str, object] = {}
        exec(program.code, space)
        for _ in range(20):
            inputs = [rng.randint(-9, 9) for _ in guards]
            found = run_of(eval(program.call(inputs, 100), space), len(guards))
            wanted = 1.0
            for passed, ((op, bound), value) in enumerate(zip(guards, inputs, strict=True)):
                if (gap := max(0, gaps[op](value, bound))) > 0:
                    wanted = (passed + 0.999 / (1 + gap)) / len(guards)
                    break
            assert credit(found) == pytest.approx(wanted, abs=1e-12)
            assert found.reached == (wanted == 1.0)


def test_refuses_lines_that_are_none() -> None:
    for source, line, match in (
        ("def g(a):\n    pass\n", 2, "no function"),
        (NESTED, 99, "line 99"),
        ("def f(:", 1, "parsed"),
        ("def f(a):\n    _posttrain_reach()\n", 2, "taken"),
    ):
        with pytest.raises(UserError, match=match):
            instrumented(source, "f", line)


def test_what_cannot_be_read_passed_nothing() -> None:
    for text in (
        None,
        "",
        "[",
        "[1]",
        '["returned", 1, [0]]',
        '["returned", true, [0, 0]]',
        '["returned", true, ["x"]]',
    ):
        found = run_of(text, 1)
        assert found == Run("unreadable", False, (None,)) and credit(found) == 0.0
    assert run_of('["returned", false, [NaN]]', 1).nearest == (None,)
