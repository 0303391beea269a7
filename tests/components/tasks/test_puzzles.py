"""Puzzles whose gold sets are those of a search, and their demonstrations."""

import asyncio

from posttrain.components.rewards import RewardContext
from posttrain.components.rewards.solution_set import SolutionSet
from posttrain.components.tasks.puzzles import Puzzles
from posttrain.datasets.puzzles import alphametic, sudoku
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


def test_a_suffix_is_a_part_of_the_prompt() -> None:
    plain, empty = Puzzles(size=3).load(), Puzzles(size=3, suffix="<think></think>").load()
    assert [t.prompt for t in empty] == [f"{t.prompt}<think></think>" for t in plain]
