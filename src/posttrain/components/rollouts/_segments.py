"""What rollouts share: samplers, segments, checks."""

from collections.abc import Mapping, Sequence

from posttrain import engines
from posttrain.engines import Sampler, answers, sampled_segment
from posttrain.errors import UserError
from posttrain.types import IntArray, Segment, Task

__all__ = [
    "answers",
    "check_demonstrations",
    "check_length",
    "demonstration_segment",
    "prompt_segment",
    "sampled_segment",
    "sampler_of",
]


def sampler_of(role: str, samplers: Mapping[str, Sampler]) -> Sampler:
    """The sampler of a role. Raises `UserError` for a role without a model in the recipe."""
    return engines.sampler_of(role, samplers, "the rollout samples from")


def prompt_segment(task: Task, sampler: Sampler) -> Segment:
    """The task's prompt in the token ids of a model, with its images as vectors."""
    return sampler.prompt(task)


def check_demonstrations(tasks: Sequence[Task], rollout: str) -> None:
    """Raise `UserError` if no task has a demonstration; some tasks may lack one."""
    if not any(task.demonstrations for task in tasks):
        raise UserError(
            f"the {rollout} rollout needs demonstrations, but none of the {len(tasks)} tasks has one; give a "
            "column named completion, response, demonstration or solution, or take the rollout 'independent'"
        )


def demonstration_segment(task: Task, text: str, prompt: Segment, sampler: Sampler) -> Segment:
    """A demonstration as a trained segment, its end token included; it was not sampled.

    Raises `UserError` if it does not fit into the model's context.
    """
    token_ids = sampler.encode_completion(task.prompt, text)
    check_length(task, prompt, token_ids, sampler, "demonstration")
    return Segment(actor="demonstration", token_ids=token_ids, trained=True, text=text)


def check_length(task: Task, prompt: Segment, token_ids: IntArray, sampler: Sampler, what: str) -> None:
    """Raise `UserError` if a text of a task does not fit into the model's context after the prompt."""
    if len(prompt) + len(token_ids) > sampler.context:
        raise UserError(
            f"task {task.key}: prompt ({len(prompt)} tokens) and {what} ({len(token_ids)}) together exceed the "
            f"model's context of {sampler.context} tokens; shorten or leave out the row"
        )
