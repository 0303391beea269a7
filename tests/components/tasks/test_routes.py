"""Queries for routes, and their checks, by hand."""

from random import Random

import pytest

from posttrain.components.tasks.routes import Routes
from posttrain.datasets.routes import CHECKS, Query, draw_query, price

QUERY = Query(origin="a", goal="f", visit="c", closed="d", budget=10)


@pytest.mark.parametrize(
    ("route", "failed"),
    [
        ("abcgf", ""),  # 1 + 2 + 3 + 1 + 3 = 10
        ("abcge", "goal"),
        ("bacgf", "start"),
        ("abbgf", "new visit"),
        ("abegf", "visit"),
        ("abcdf", "open"),
        ("acehf", "budget"),  # 1 + 3 + 2 + 2 + 3 = 11
        ("abcg", "complete new start goal visit open budget"),
        ("abczf", "known new start goal visit open budget"),
        ("", "complete known new start goal visit open budget"),
    ],
)
def test_checks(route: str, failed: str) -> None:
    checks = QUERY.checks(route)
    assert list(checks) == list(CHECKS)
    assert [name for name, good in checks.items() if not good] == failed.split()


def test_prices_and_text() -> None:
    assert (price("abc"), price("gh")) == (6, 3)
    assert QUERY.text == "a>f+c-d<10\n"


def test_every_query_has_a_route_and_a_planner_without_faults_finds_one() -> None:
    for number in range(50):
        query, route = draw_query(Random(number))
        assert all(query.checks(route).values())
    good = [all(task.fields["checks"].values()) for task in Routes(size=200, faults=0.0).load()]
    assert sum(good) > 190, "only a route that is too expensive is missed, after 50 draws"


def test_about_one_route_in_twenty_passes_and_only_those_may_be_kept() -> None:
    tasks = Routes(size=1000).load()
    passing = [all(task.fields["checks"].values()) for task in tasks]
    assert 30 <= sum(passing) <= 80
    kept = Routes(size=1000, keep="passing").load()
    assert [bool(task.demonstrations) for task in kept] == passing


def test_a_query_of_another_form_is_none() -> None:
    fields = {"origin": "a", "goal": "f", "visit": "c", "closed": "d"}
    assert Query.of({**fields, "budget": 10}) == QUERY
    assert Query.of({**fields, "budget": "10"}) is None
    assert Query.of({**fields, "goal": "z", "budget": 10}) is None
    assert Query.of("a>f") is None
