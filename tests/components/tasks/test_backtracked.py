"""Traces with dead ends: as many as wanted, all different, all replayed, and an answer that fits the content."""

import asyncio
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from posttrain.components.rewards import RewardContext
from posttrain.components.rewards.countdown import Countdown as CountdownReward
from posttrain.components.tasks.arithmetic import Arithmetic
from posttrain.components.tasks.backtracked import Backtracked, _read
from posttrain.components.tasks.countdown import Countdown
from posttrain.components.tasks.files import Files
from posttrain.datasets.backtracks import dead_ends
from posttrain.errors import UserError
from posttrain.grading.expressions import evaluate
from posttrain.types import Group, Segment, Task, Trajectory

PUZZLES = Countdown(size=60, numbers=(3, 5))


def replayed(numbers: list[int], path: tuple[str, ...]) -> int:
    """The last number of a path, each step of which takes two numbers that are there."""
    left = Counter(numbers)
    for step in path:
        expression, _, result = step.partition("=")
        operator = next(sign for sign in "+*/-" if sign in expression[1:])
        for number in map(int, expression.split(operator)):
            assert left[number] > 0, f"{step} takes {number}, which is used up"
            left[number] -= 1
        assert evaluate(expression) == int(result)
        left[int(result)] += 1
    [last] = left.elements()
    return last


@pytest.mark.parametrize("k", [0, 1, 2, 3])
def test_dead_ends_are_different_and_replay(k: int) -> None:
    for before, after in zip(PUZZLES.load(), Backtracked(tasks=PUZZLES, dead_ends=k).load(), strict=True):
        [text] = after.demonstrations
        found = dead_ends(text)
        assert (found.count, found.distinct) == (k, k)
        for path in found.paths:
            assert replayed(list(before.fields["numbers"]), path) != before.fields["target"]
        final = text.rpartition("\n####")[0].rpartition("\n")[2]
        assert final.endswith(f"={before.fields['target']}")
        assert text.endswith(f"\n#### {before.answer}")
        assert (after.key, after.prompt, after.answer) == (before.key, before.prompt, before.answer)


def test_every_step_of_a_dead_end_differs_from_the_solution_after_it_leaves_it() -> None:
    for task in Backtracked(tasks=PUZZLES, dead_ends=3).load():
        plain = Backtracked(tasks=Countdown(), dead_ends=0)
        [solution] = plain._trace(task, _read(task)).strip().split("\n")[:1]
        steps = tuple(solution.split("; "))
        found = dead_ends(task.demonstrations[0]).paths
        left = [next(i for i, (a, b) in enumerate(zip(path, steps, strict=True)) if a != b) for path in found]
        assert left == sorted(left)
        for start, path in zip(left, found, strict=True):
            assert all(a != b for a, b in zip(path[start:], steps[start:], strict=True))


async def scores(tasks: list[Task]) -> list[float]:
    found = []
    for task in tasks:
        [text] = task.demonstrations
        segment = Segment(actor="policy", token_ids=np.zeros(1, np.int64), trained=True, text=text)
        group = Group(key=task.key, trajectories=(Trajectory(task=task, segments=(segment,), stop_reason="stop"),))
        found += [score.value for score in await CountdownReward().score(group, RewardContext())]
    return found


@pytest.mark.parametrize(("content", "reward"), [("right", 1.0), ("wrong", 0.0), ("shuffled", 0.0)])
def test_content_decides_the_score_and_not_the_number_of_dead_ends(content: str, reward: float) -> None:
    tasks = list(Backtracked(tasks=PUZZLES, dead_ends=2, content=content).load())  # type: ignore[arg-type]
    assert [dead_ends(task.demonstrations[0]).count for task in tasks] == [2] * len(tasks)
    assert asyncio.run(scores(tasks)) == [reward] * len(tasks)


def test_shuffled_traces_are_those_of_the_others() -> None:
    right, shuffled = (
        Counter(task.demonstrations[0] for task in Backtracked(tasks=PUZZLES, content=content).load())  # type: ignore[arg-type]
        for content in ("right", "shuffled")
    )
    assert right == shuffled


def test_only_the_given_operators() -> None:
    plain = Countdown(size=40, numbers=(3, 3), operators="+-")
    tasks = Backtracked(tasks=plain, dead_ends=2, operators="+-").load()
    assert not any(sign in text for task in tasks for text in task.demonstrations for sign in "*/")


def test_rows_of_a_file(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"prompt": "3 5 2 to 24", "numbers": [3, 5, 2], "target": 24, "answer": "5*(3+2)-1"}\n')
    with pytest.raises(UserError, match=r"an expression of \[3, 5, 2\] that is 24 is needed as its answer"):
        Backtracked(tasks=Files(path=str(path))).load()
    path.write_text('{"prompt": "3 5 2 to 25", "numbers": [3, 5, 2], "target": 25, "answer": "5*(3+2)"}\n')
    [task] = Backtracked(tasks=Files(path=str(path))).load()
    assert task.demonstrations[0].endswith("5*5=25\n#### 5*(3+2)")


def test_mistakes() -> None:
    with pytest.raises(UserError, match="is needed as its answer"):
        Backtracked(tasks=Arithmetic(size=1)).load()
    pair = Countdown(size=1, numbers=(2, 2))
    with pytest.raises(UserError, match=r"8 different dead ends are needed, and [0-3] were found"):
        Backtracked(tasks=pair, dead_ends=8).load()
