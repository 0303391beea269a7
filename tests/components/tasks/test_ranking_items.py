"""Items of several candidates: masked names in a drawn order, gold scores by name, numbers that principles order."""

import json
from dataclasses import replace
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


def test_a_judge_to_be_imitated_may_have_given_other_points(tmp_path: Path) -> None:
    row = {"candidates": ["a", "bb"], "gold": [2, 1], "points": [3, 3], "thought": "alike"}
    [item] = items(tmp_path, **row).load()
    assert read_ranking(item.demonstrations[0]).scores == {"model-1": 3.0, "model-2": 3.0}
    assert sorted(item.fields["gold"].values()) == [1, 2] and item.demonstrations[0].startswith("<think>alike</think>")
    source = replace(items(tmp_path, **row), ranking=False)
    assert json.loads(source.load()[0].demonstrations[0].rpartition("</think>")[2]) == {
        "scores": {"model-1": 3, "model-2": 3}
    }
    with pytest.raises(UserError, match="for each candidate"):
        items(tmp_path, **{**row, "points": [1]}).load()


def test_coarse_points_of_numbers() -> None:
    tasks = RankedNumbers(size=300, candidates=2, thoughts=True, points=1e-9).load()
    for task in tasks:
        numbers = [int(text) for text in task.fields["candidates"]]
        third = [1 if n <= 33 else 3 if n <= 66 else 5 for n in numbers]
        even = [5 if n % 2 == 0 else 1 for n in numbers]
        own = {"larger": third, "smaller": [6 - p for p in third]}.get(task.domain, even)
        assert task.fields["points"] == own
        best = max(numbers, key=lambda n: merit(n, task.domain))
        assert task.fields["thought"] == f"{task.domain}: {best}, {sum(numbers) - best}"
    noisy = RankedNumbers(size=300, candidates=2, points=0.3).load()
    off = [
        a != b
        for x, y in zip(tasks, noisy, strict=True)
        for a, b in zip(x.fields["points"], y.fields["points"], strict=True)
    ]
    assert 0.1 < sum(off) / len(off) < 0.35, "held in 1 to 5, so that some stay"
