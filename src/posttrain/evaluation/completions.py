"""Scores completions of the data by a reward."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from posttrain.components.rewards import Reward, RewardContext, joined, scored
from posttrain.datasets.together import lists, lists_in
from posttrain.engines import wait_for
from posttrain.errors import UserError
from posttrain.types import Group, Score, Segment, Task, Trajectory


@dataclass(frozen=True, kw_only=True)
class ScoredCompletion:
    """A completion of a task, with its score."""

    task: Task
    completion: str
    score: Score


def score_completions(
    reward: Reward, tasks: Sequence[Task], judge: Callable[[Task, Sequence[str]], Sequence[Score]] | None = None
) -> list[ScoredCompletion]:
    """The score of every completion of every task; those of a task are one group, or of all
    tasks that the reward scores together.

    Completions are demonstrations and rated ones. `judge` is the reward with the models of its roles. Raises
    `UserError` for a reward that needs a model and has none, and for data without completions.
    """
    if reward.roles and judge is None:
        raise UserError(
            f"this reward scores with models ({', '.join(sorted(reward.roles))}), and none is named; write --model "
            f"{min(reward.roles)}=FOLDER, or score with a reward that needs none"
        )
    shown = [(task, [*task.demonstrations, *(rated.completion for rated in task.rated)]) for task in tasks]
    shown = [(task, texts) for task, texts in shown if texts]
    if not shown:
        raise UserError("no row has a completion to score; give the file a column 'completion' beside the prompt")
    reward.prepare()
    reward.check([task for task, _ in shown])
    if reward.together is not None:
        groups = [Group(trajectories=tuple(_written(task, n, t) for n, t in enumerate(texts))) for task, texts in shown]
        tasks = [task for task, _ in shown]
        lists(tasks, reward.together, "this reward")
        rows = [joined([groups[i] for i in own], tasks[own[0]].key) for own in lists_in(tasks, reward.together)]
        return [_found(trajectory) for row in rows for trajectory in wait_for(scored(row, reward, RewardContext()))]
    found = []
    for task, texts in shown:
        if judge is not None:
            pairs = zip(texts, judge(task, texts), strict=True)
            found += [ScoredCompletion(task=task, completion=text, score=score) for text, score in pairs]
            continue
        group = Group(key=task.key, trajectories=tuple(_written(task, n, text) for n, text in enumerate(texts)))
        for trajectory in wait_for(scored(group, reward, RewardContext())):
            found.append(_found(trajectory))
    return found


def _found(trajectory: Trajectory) -> ScoredCompletion:
    assert trajectory.score is not None, "every rollout of a scored group has a score"
    return ScoredCompletion(task=trajectory.task, completion=trajectory.completion, score=trajectory.score)


def _written(task: Task, sample: int, text: str) -> Trajectory:
    """A completion as a rollout; its tokens stand for its bytes."""
    prompt = task.prompt if isinstance(task.prompt, str) else "\n".join(m["content"] for m in task.prompt)
    token_ids = np.frombuffer(text.encode("utf-8", "replace") or b"\n", np.uint8).astype(np.int64)
    return Trajectory(
        task=task,
        segments=(
            Segment(actor="prompt", token_ids=np.zeros(1, np.int64), text=prompt),
            Segment(actor="policy", token_ids=token_ids, trained=True, text=text),
        ),
        stop_reason="stop",
        sample=sample,
    )
