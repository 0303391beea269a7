"""Checks, before a run, that every prompt can be answered."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from posttrain.errors import TaskFault, UserError
from posttrain.types import Task

if TYPE_CHECKING:
    from posttrain.components.rollouts import Rollout
    from posttrain.policies import Policy


def check_prompts(policy: "Policy", tasks: Sequence[Task], purpose: str, rollout: "Rollout | None" = None) -> None:
    """Raise `UserError` for prompts that are empty or leave no room for an answer; `purpose` begins the message.

    In an environment, which shows more, they may be empty.
    """
    context = policy.context
    lengths = [(task.key, _length(policy, task, purpose)) for task in tasks]
    empty = [key for key, length in lengths if not length]
    if empty and not (rollout is not None and rollout.in_environment):
        raise TaskFault(
            empty[0],
            f"{purpose}: {len(empty)} of {len(tasks)} tasks have no prompt to answer; the first is task {empty[0]}. "
            "Plain text can only be imitated; give tasks with prompts (evaluation.tasks, or tasks of the stage)",
        )
    too_long = [(key, length) for key, length in lengths if length >= context]
    if too_long:
        key, length = too_long[0]
        raise TaskFault(
            key,
            f"{purpose}: prompts of {len(too_long)} of {len(tasks)} tasks leave no room for an answer in the model's "
            f"context of {context} tokens; the first is task {key} with {length} tokens. Shorten or leave out those "
            "rows, or use a model with a longer context",
        )


def _length(policy: "Policy", task: Task, purpose: str) -> int:
    """Tokens of a task's prompt. Raises `UserError` that names the task when the prompt cannot be encoded."""
    try:
        return policy.prompt_length(task)
    except UserError as error:
        raise TaskFault(task.key, f"{purpose}: task {task.key}: {error}") from None
