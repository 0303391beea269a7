"""Pairs of rated candidates: totals, ties, the veto, shuffled candidates, and what is refused."""

import asyncio
import json
from collections.abc import Sequence
from typing import Any

import pytest
from pydantic import ValidationError

from posttrain.component import frozen
from posttrain.components.rewards import Reward, RewardContext
from posttrain.components.rewards.regex import Regex
from posttrain.components.selections.aspect_pairs import AspectPairs
from posttrain.errors import AlarmStop, UserError
from posttrain.types import Group, Score, Task

PARTS = {"look": Regex(pattern="a"), "harm": Regex(pattern="b")}


def task(*texts: str) -> Task:
    return Task(key="t", prompt="p", fields={"texts": list(texts)})


def pairs(rows: list[dict[str, float]], **settings: Any) -> list[tuple[str, str]]:
    own = task(*(str(i) for i in range(len(rows))))
    selection = AspectPairs(aspects=PARTS, **settings)
    try:
        chosen = selection.choose([own], json.loads(json.dumps([rows])))
    except AlarmStop:
        return []
    return [(pair.chosen, pair.rejected) for pair in chosen.tasks[0].preferences]


TWO = [{"look": 4.0, "harm": 2.0}, {"look": 2.0, "harm": 5.0}]


@pytest.mark.parametrize(
    ("rows", "settings", "found"),
    [
        (TWO, {}, [("1", "0")]),
        (TWO, {"weights": {"harm": 0.0}}, [("0", "1")]),
        (TWO, {"margin": 0.5}, []),
        (TWO, {"margin": 0.4}, [("1", "0")]),
        ([{"look": 3.0, "harm": 3.0}] * 2, {}, []),
        ([{"look": 5.0}, {}, {"look": 1.0, "harm": 2.0}], {}, [("0", "2")]),
        ([{"look": 5.0}], {}, []),
        ([{"look": 5.0, "harm": 1.0}, {"look": 1.0, "harm": 4.0}], {"floors": {"harm": 3.0}}, []),
        (
            [{"look": 4.0, "harm": 1.0}, {"look": 1.0, "harm": 4.0}],
            {"floors": {"harm": 3.0}, "margin": 3.0},
            [("1", "0")],
        ),
        ([{"look": 5.0, "harm": 1.0}, {"look": 4.0, "harm": 1.0}], {"floors": {"harm": 3.0}}, []),
    ],
)
def test_pairs_follow_the_totals(rows: Any, settings: dict[str, Any], found: list[tuple[str, str]]) -> None:
    assert pairs(rows, **settings) == found


def test_a_pair_has_its_margin_and_the_scores_of_both() -> None:
    chosen = AspectPairs(aspects=PARTS).choose([task("x", "y")], [TWO])
    (pair,) = chosen.tasks[0].preferences
    assert pair.fields == {"margin": 0.5}
    assert pair.aspects == {"look": (2.0, 4.0), "harm": (5.0, 2.0)}
    same = AspectPairs(aspects=PARTS)
    with pytest.raises(AlarmStop, match="no pair"):
        same.choose([task("x", "x")], [TWO])


@frozen
class First(Reward):
    """Prefers what is shown first."""

    size: float = 1.0

    async def score(self, group: Group, context: RewardContext) -> Sequence[Score]:
        return [Score(value=1.0 + self.size * (place == 0), status="ok") for place in range(len(group))]


def test_candidates_are_shown_in_a_drawn_order() -> None:
    tasks = [Task(key=f"t{i}", prompt="p", fields={"texts": ["a", "b", "c", "d"]}) for i in range(40)]

    def preferred(shuffled: bool) -> list[int]:
        judge = AspectPairs(aspects={"look": First()}, shuffled=shuffled)
        rows = asyncio.run(judge.measure(tasks, {}))
        return [[own["look"] for own in row].index(2.0) for row in rows]

    assert set(preferred(False)) == {0}
    drawn = preferred(True)
    assert drawn == preferred(True) and all(drawn.count(place) >= 3 for place in range(4))


def test_scores_outside_the_scale_and_fields_without_texts_are_refused() -> None:
    with pytest.raises(UserError, match="outside the scale"):
        asyncio.run(AspectPairs(aspects={"look": First(size=9.0)}).measure([task("a", "b")], {}))
    with pytest.raises(UserError, match="no list of texts"):
        asyncio.run(AspectPairs(aspects=PARTS).measure([Task(key="t", prompt="p", fields={"texts": "a"})], {}))
    assert asyncio.run(AspectPairs(aspects=PARTS, first=1).measure([task(), task()], {})) == [[]]


@pytest.mark.parametrize("settings", [{"weights": {"lok": 1.0}}, {"floors": {"x": 1.0}}, {"scale": (5.0, 1.0)},
                                      {"weights": {"look": 0.0, "harm": 0.0}}])  # fmt: skip
def test_settings_that_do_not_fit(settings: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        AspectPairs(aspects=PARTS, **settings)
