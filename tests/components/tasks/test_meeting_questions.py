"""Questions about states of a meeting game."""

import asyncio
import json
from typing import Any

import numpy as np

from posttrain.components.rewards import RewardContext
from posttrain.components.rewards.match import Match
from posttrain.components.tasks.meeting_questions import CATEGORIES, MeetingQuestions
from posttrain.types import Group, Segment, Task, Trajectory


def test_198_questions_in_three_categories() -> None:
    tasks = MeetingQuestions().load()
    counts = [sum(task.domain == name for task in tasks) for name in CATEGORIES]
    assert len(tasks) == 198 and min(counts) > 40
    assert all(len(set(task.fields["options"])) == 4 for task in tasks)


def test_tasks_by_hand() -> None:
    tasks = MeetingQuestions()
    for place, other, options, answer in [(4, 5, (3, 4, 5, 8), ["B", "C"]), (4, 6, (5, 0, 1, 2), "A")]:
        right = tuple({(place + s) % 9 for s in (-1, 0, 1)} & {(other + s) % 9 for s in (-1, 0, 1)})
        made = tasks._task("joint planning", "", options, right)
        assert made.answer == (answer if isinstance(answer, str) else json.dumps(answer))


def scored(task: Task, text: str) -> Any:
    ids = np.zeros(1, np.int64)
    segments = (Segment(actor="prompt", token_ids=ids), Segment(actor="policy", token_ids=ids, trained=True, text=text))
    group = Group(trajectories=(Trajectory(task=task, segments=segments, stop_reason="stop"),))
    return asyncio.run(Match().score(group, RewardContext()))[0]


def test_each_right_letter_is_right() -> None:
    several = next(task for task in MeetingQuestions().load() if task.answer and task.answer.startswith("["))
    right = json.loads(several.answer or "")
    assert len(right) > 1 and all(scored(several, f" #### {letter}").status == "ok" for letter in right)
    wrong = next(letter for letter in "ABCD" if letter not in right)
    assert scored(several, f" #### {wrong}").status == "wrong"
