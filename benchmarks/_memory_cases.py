"""Memories of thoughts, row 91: what is added for likeness to successes, and for being unlike failures.

The memories hold three correct and three incorrect rollouts of each of 200 sums. A text is scored by itself in the next
step. Right ones work the sum out in words that are not stored. As by trained models, a wrong text is accepted where its
reward is at least that of the right one of its task, and a right text is not where a wrong one of its task is above it.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks._model_cases import TASKS, measured
from benchmarks._reward_rows import Row
from posttrain.components.rewards import RewardContext
from posttrain.components.rewards.episodic_memory import EpisodicMemory
from posttrain.components.rewards.match import Match
from posttrain.components.tasks.arithmetic import Arithmetic
from posttrain.types import Group, Score, Segment, Task, Trajectory


@dataclass(frozen=True)
class Remembered:
    """The reward with full memories; what it scores is not remembered."""

    reward: EpisodicMemory
    state: Mapping[str, Any]

    async def scores(self, task: Task, texts: Sequence[str]) -> list[Score]:
        """The scores of texts, each by itself."""
        found: list[Score] = []
        for text in texts:
            own = {**self.state, "of": {}, "new": list(self.state["new"])}
            found += await self.reward.score(group(task, [text]), RewardContext(step=1, learning=True, state=own))
        return found


def group(task: Task, texts: Sequence[str]) -> Group:
    """Completions of a task."""
    rows = (Segment(actor="policy", token_ids=np.zeros(1, np.int64), trained=True, text=text) for text in texts)
    made = (Trajectory(task=task, segments=(row,), stop_reason="stop", sample=n) for n, row in enumerate(rows))
    return Group(key=task.key, trajectories=tuple(made))


def written(thoughts: str, answer: object) -> str:
    """A completion."""
    return f"<think>{thoughts}</think>\n#### {answer}"


def stored(task: Task) -> tuple[str, str, str]:
    """Thoughts that led to the answer."""
    sum_of = task.demonstrations[0].partition("\n")[0].strip()
    return sum_of, f"first {sum_of}", f"{sum_of}, and the carry is in it"


def failed(task: Task) -> tuple[str, str, str]:
    """Thoughts that did not."""
    wrong = int(task.answer or 0) + 10
    return f"guess {wrong}", f"the tens alone: {wrong}", "count on fingers"


def remembered(tasks: Sequence[Task]) -> Remembered:
    """The reward after a step with rollouts of all tasks."""
    reward, state = EpisodicMemory(of=Match(), warm_up=50), dict[str, Any]()

    async def fill() -> None:
        for task in tasks:
            texts = [written(own, task.answer) for own in stored(task)]
            texts += [written(own, int(task.answer or 0) + 10) for own in failed(task)]
            await reward.score(group(task, texts), RewardContext(step=0, learning=True, state=state))
        other = Task(key="other", prompt="Q: 1+1\nA:", answer="2")  # with the first of a step memories are filled
        await reward.score(group(other, ["3"]), RewardContext(step=1, learning=True, state=state))

    asyncio.run(fill())
    return Remembered(reward, state)


def texts(task: Task, other: Task) -> Mapping[str, str]:
    """A right text and wrong ones."""
    own, wrong = str(task.demonstrations[0]).partition("\n")[0].strip(), int(task.answer or 0) + 10
    right = written(f"both together, {own}", task.answer)
    return {
        "demonstration": right,
        "another's": written(f"both together, {other.demonstrations[0].partition(chr(10))[0].strip()}", other.answer),
        "a stored success": written(stored(task)[0], wrong),
        "a stored failure": written(failed(task)[0], wrong),
        "half": right[: len(right) // 2],
        "the prompt": str(task.prompt),
        "nothing": "",
        "twice": right + right,
    }


def memories(budget: int) -> Row:
    """The numbers of the reward for the answer with both memories."""
    tasks = [task for task in Arithmetic(size=2 * TASKS, seed=91).load() if "/" not in str(task.answer)][:TASKS]
    judged = remembered(tasks)
    matched = Match()

    def right(task: Task, text: str) -> bool:
        (score,) = asyncio.run(matched.score(group(task, [text]), RewardContext()))
        return score.status == "ok"

    return measured("memories (91)", judged, tasks, texts, right, budget)
