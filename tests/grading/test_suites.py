"""Metrics of test suites by hand, and the reading of tests."""

import math
import random

import numpy as np
import pytest

from posttrain.datasets import faulty_functions, function_steps
from posttrain.datasets.call_inputs import boundary_inputs, differing_inputs, random_inputs
from posttrain.grading.suite_inputs import literal_of
from posttrain.grading.suites import (
    area,
    correlation,
    detection_rate,
    diversity,
    effective,
    named_tests,
    patterns,
    saturation,
    solutions_fault,
    verifies,
)
from posttrain.grading.values import tree_of

KILLS = np.array([[1, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 0]], np.bool_)


def test_metrics_by_hand() -> None:
    """Two of three solutions are killed, by two distinct patterns of four tests."""
    assert detection_rate(KILLS) == pytest.approx(2 / 3) and not verifies(KILLS)
    assert patterns(KILLS) == 2 and diversity(KILLS) == 0.5
    whole = np.vstack([KILLS, [[False, False, True]]])
    assert verifies(whole) and detection_rate(whole) == 1.0 and patterns(whole) == 3
    none = np.zeros((0, 3), np.bool_)
    assert detection_rate(none) == 0.0 and not verifies(none) and diversity(none) == 0.0
    assert math.isnan(detection_rate(np.zeros((2, 0), np.bool_)))


def test_a_further_test_lowers_nothing_and_a_copy_adds_no_pattern() -> None:
    rng = np.random.default_rng(0)
    for _ in range(200):
        kills = rng.random((rng.integers(1, 6), rng.integers(1, 6))) < 0.3
        more = np.vstack([kills, rng.random((1, kills.shape[1])) < 0.3])
        assert detection_rate(more) >= detection_rate(kills) and verifies(more) >= verifies(kills)
        assert patterns(np.vstack([kills, kills[:1]])) == patterns(kills)


def test_the_area_by_hand() -> None:
    """(0 + .5)/2 and (.5 + 1)/2 over two steps: .5; from the second test on, .75."""
    assert area([0.0, 0.5, 1.0], 1) == pytest.approx(0.5)
    assert area([0.0, 0.5, 1.0], 2) == pytest.approx(0.75)
    assert area([0.0, 0.5, 1.0], 3) == 1.0


def test_correlated_tests_are_fewer_and_the_formula_is_no_bound() -> None:
    """8 tests with rho 1 are 1, with 0 they are 8, with 1/7 4; .2 and .1 at 50 tests give .85, as the paper's formula.

    A mixture of solutions that are killed with probability .5 or .1 has more than the formula.
    """
    assert [effective(8, rho) for rho in (1.0, 0.0, 1 / 7)] == pytest.approx([1.0, 8.0, 4.0])
    assert saturation(0.2, 50, 0.1) == pytest.approx(0.85, abs=0.005)
    rng = np.random.default_rng(0)
    kills = rng.random((50, 4000)) < np.where(rng.random(4000) < 0.25, 0.5, 0.1)
    rho = correlation(kills)
    assert 0.1 < rho < 0.3 and detection_rate(kills) > saturation(kills.mean(), 50, rho) + 0.1
    copies = np.array([[1, 0, 1], [1, 0, 1], [1, 1, 1]], np.bool_)
    assert correlation(copies) == pytest.approx(1.0) and correlation(KILLS[:1]) == 0.0


def test_tests_are_calls_with_literals() -> None:
    text = """import time
assert f(1) == 2
assert f(1) == 2
  assert f([1, -2], 'a') == (True, None)
assert g(1) == 2
assert f(x) == 2
assert f(1) == f(2)
assert False
assert f(open('/etc/passwd')) == 1
assert f(1) != 2
assert f(time.time()) == 1; exit(0)
"""
    tests, ignored = named_tests(text, "f", 10)
    assert [test.call for test in tests] == ["f(1)", "f([1, -2], 'a')"] and ignored == 8
    assert len(named_tests(text, "f", 1)[0]) == 1
    assert named_tests("assert f(" + "(" * 900 + ")" * 900 + ") == 1", "f", 5) == ([], 1)
    assert named_tests("assert f('" + "a" * 5000 + "') == 1", "f", 5) == ([], 1)


def test_solutions_that_are_missing() -> None:
    good = {"correct": ["a", "b"], "wrong": ["c"]}
    assert not solutions_fault(good)
    for name, bad in (("correct", ["a"]), ("correct", "ab"), ("wrong", []), ("wrong", [1]), ("function", 3)):
        assert name in solutions_fault({**good, name: bad})


def test_forms_of_a_function_agree_and_copies_differ() -> None:
    """On 1,000 drawn inputs the three forms are the same, and each copy differs where the generator states it."""
    for made in function_steps.functions(20, 10, 200, 0):
        right = [faulty_functions.compiled(source) for source in made.right]
        rng = random.Random(1)
        for _ in range(50):
            x = faulty_functions.drawn(made.domain, rng)
            assert len({faulty_functions.outcome(function, x) for function in right}) == 1, (made.name, x)
        assert len(made.wrong) == len(made.killing) == 10 == len(set(made.wrong)), made.name
        for source, x in zip(made.wrong, made.killing, strict=True):
            copied = faulty_functions.compiled(source)
            assert faulty_functions.outcome(copied, x) != faulty_functions.outcome(right[0], x)


def test_faults_are_single_changes() -> None:
    found = faulty_functions.faulty("def f(x):\n    return x > 2\n")
    bodies = {source.split("return ")[1].strip() for source in found}
    assert bodies == {"x >= 2", "x < 2", "x > 3", "x > 1"}


def test_inputs_by_rules() -> None:
    rng = random.Random(0)
    assert set(random_inputs((0, 2, 0), 10, rng)) == {"0", "1", "2"}
    assert set(boundary_inputs((0, 9, 0), [5], 99, rng)) == {"0", "9", "1", "4", "5", "6"}
    table = {"1": [False, False], "2": [True, False], "3": [False, True], "4": [False, False]}
    assert set(differing_inputs(table, 2, rng)) == {"2", "3"}
    assert len(differing_inputs(table, 3, rng)) == 3


def test_trees_as_literals() -> None:
    for value in (None, True, -31, "a'b", [1, [2]], (1,), (1, "x"), []):
        assert literal_of(tree_of(value)) == repr(value)
    others: tuple[object, ...] = (1.5, {1: 2}, [1.5], object(), 10**100)
    for other in others:
        assert literal_of(tree_of(other)) is None
    assert literal_of(["int", "0x1; import os"]) is None and literal_of("x") is None
