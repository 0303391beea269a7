"""Puzzles whose gold sets are those of a search, and their demonstrations."""

import asyncio

from posttrain.components.rewards import RewardContext
from posttrain.components.rewards.solution_set import SolutionSet
from posttrain.components.tasks.puzzles import Puzzles
from posttrain.datasets.puzzles import alphametic, product, sudoku
from posttrain.types import Group
from tests.components.rewards.judging import attempt


def test_gold_sets_are_all_solutions_and_demonstrations_list_them() -> None:
    tasks = Puzzles(names=("alphametic", "sudoku"), size=24).load()
    for task in tasks:
        puzzle = str(task.prompt).removeprefix("Solve ").strip()
        gold = task.fields["solutions"]
        if task.domain == "alphametic":
            assert gold == alphametic(puzzle)
        else:
            assert [one.replace("/", "") for one in gold] == sudoku(puzzle.replace("/", ""), 99)
            assert puzzle.count(".") == 12
        assert 1 <= len(gold) <= 3
        group = Group(key="k", trajectories=(attempt(task.demonstrations[0], task),))
        [score] = asyncio.run(SolutionSet().score(group, RewardContext()))
        assert score.status == "ok" and task.demonstrations[0].startswith("<tot>")
    assert {len(task.fields["solutions"]) for task in tasks} > {1}


def test_products_have_all_pairs_of_digits() -> None:
    """24 is 3 * 8 and 4 * 6; 7 is 1 * 7; 49 is 7 * 7 alone, and 13 no product of digits."""
    assert product(7, 31) == ["3*8+7=31", "4*6+7=31"] and product(1, 8) == ["1*7+1=8"]
    assert product(0, 49) == product(5, 18) == []
    tasks = Puzzles(names=("product",), size=60).load()
    for task in tasks:
        assert all(len({eval(side) for side in one.split("=")}) == 1 for one in task.fields["solutions"])
        group = Group(key="k", trajectories=(attempt(task.demonstrations[0], task),))
        assert asyncio.run(SolutionSet().score(group, RewardContext()))[0].status == "ok"
        added, result = str(task.prompt).strip().partition("+")[2].split("=")
        factors = " ".join(one.partition("+")[0] for one in task.fields["solutions"])
        assert f"<tot>{result}-{added}={int(result) - int(added)} {factors}</tot>" in task.demonstrations[0]
    assert {len(task.fields["solutions"]) for task in tasks} == {1, 2}


def test_a_suffix_is_a_part_of_the_prompt() -> None:
    plain, empty = Puzzles(size=3).load(), Puzzles(size=3, suffix="<think></think>").load()
    assert [t.prompt for t in empty] == [f"{t.prompt}<think></think>" for t in plain]


def test_some_demonstrations_stop_at_the_first_solution() -> None:
    tasks = Puzzles(names=("alphametic", "product"), size=40, first=0.5).load()
    whole = Puzzles(names=("alphametic", "product"), size=40).load()
    assert [(t.prompt, t.fields) for t in tasks] == [(t.prompt, t.fields) for t in whole]
    stopped = [
        (own, other) for own, other in zip(tasks, whole, strict=True) if own.demonstrations != other.demonstrations
    ]
    assert 5 <= len(stopped) < 30 and {own.domain for own, _ in stopped} == {"alphametic", "product"}
    for own, other in stopped:
        first = own.fields["solutions"][0]
        tree, listed = own.demonstrations[0].split("</tot>")
        assert listed == f"\n#### {first}"
        assert other.demonstrations[0].startswith(tree) and tree.endswith(
            first.partition("+")[0] if "*" in first else first
        )
