"""Items of several candidates: masked names in a drawn order, gold scores by name, numbers that principles order."""

import json
from pathlib import Path

import pytest

from posttrain.components.tasks.files import Files
from posttrain.components.tasks.ranked_numbers import PRINCIPLES, RankedNumbers, merit
from posttrain.components.tasks.ranking_items import RankingItems
from posttrain.errors import UserError
from posttrain.grading.rankings import order_reward, read_ranking


def items(folder: Path, **row: object) -> RankingItems:
    path = folder / "rows.jsonl"
    path.write_text(json.dumps({"prompt": "Q", "principle": "short", **row}) + "\n")
    return RankingItems(tasks=Files(path=str(path)))


def test_gold_follows_the_candidates(tmp_path: Path) -> None:
    [item] = items(tmp_path, candidates=["a", "bb", "ccc"], gold=[5, 3, 1]).load()
    gold = item.fields["gold"]
    lines = dict(line.split(": ") for line in str(item.prompt).splitlines()[2:])
    assert {lines[name]: score for name, score in gold.items()} == {"a": 5, "bb": 3, "ccc": 1}
    assert str(item.prompt).startswith("short\nQ\n") and lines[str(item.answer)] == "a"
    assert order_reward(read_ranking(item.demonstrations[0]).scores, gold) == 1.0


@pytest.mark.parametrize("row", [{}, {"candidates": ["a"], "gold": [1]}, {"candidates": ["a", "b"], "gold": [1, "x"]}])
def test_mistakes(tmp_path: Path, row: dict[str, object]) -> None:
    with pytest.raises(UserError, match="at least two candidates"):
        items(tmp_path, **row).load()


def test_orders_differ_between_items() -> None:
    found = [task.fields["gold"] for task in RankingItems(tasks=RankedNumbers(size=50)).load()]
    assert len({tuple(gold.values()) for gold in found}) == 6


def test_principles_by_hand() -> None:
    ranked = {p: sorted((4, 17, 9, 6), key=lambda x: merit(x, p), reverse=True) for p in PRINCIPLES}
    assert ranked == {"larger": [17, 9, 6, 4], "smaller": [4, 6, 9, 17], "even first": [6, 4, 17, 9]}
    task = RankedNumbers(size=1).load()[0]
    assert sorted(task.fields["gold"]) == [1, 2, 3] and len(set(task.fields["candidates"])) == 3


def test_without_the_principle_it_is_not_shown() -> None:
    source = RankedNumbers(size=5)
    shown, hidden = RankingItems(tasks=source).load(), RankingItems(tasks=source, principle=False).load()
    for a, b in zip(shown, hidden, strict=True):
        assert str(a.prompt) == a.domain + str(b.prompt) and a.fields["gold"] == b.fields["gold"]
