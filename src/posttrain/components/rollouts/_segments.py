"""The pieces that every rollout is made of."""

from collections.abc import Mapping, Sequence

from posttrain import engines
from posttrain.engines import Sampler
from posttrain.errors import UserError
from posttrain.types import Completion, IntArray, Segment, Task, Trajectory


def sampler_of(role: str, samplers: Mapping[str, Sampler]) -> Sampler:
    """The sampler of a role. Raises `UserError` for a role that no model of the recipe plays."""
    return engines.sampler_of(role, samplers, "the rollout samples from")


def prompt_segment(task: Task, sampler: Sampler) -> Segment:
    """The task's prompt in the ids of one model, with its images as vectors."""
    return sampler.prompt(task)


def sampled_segment(completion: Completion, role: str, *, trained: bool = True, turn: int = 0) -> Segment:
    """What a model wrote, with the log-probabilities and the version that it was written with."""
    return Segment(
        actor=role,
        token_ids=completion.token_ids,
        trained=trained,
        logp=completion.logp,
        version=completion.version,
        turn=turn,
        text=completion.text,
        vectors=completion.vectors,
    )


def answers(
    task: Task, prompt: Segment, completions: Sequence[Completion], role: str, *, first: int = 0
) -> tuple[Trajectory, ...]:
    """Attempts that are a prompt and what a model wrote after it, numbered from `first`."""
    return tuple(
        Trajectory(task=task, segments=(prompt, sampled_segment(c, role)), stop_reason=c.stop_reason, sample=first + i)
        for i, c in enumerate(completions)
    )


def check_demonstrations(tasks: Sequence[Task], rollout: str) -> None:
    """Raise `UserError` when no task has a demonstration; some may be without."""
    if not any(task.demonstrations for task in tasks):
        raise UserError(
            f"the {rollout} rollout works with demonstrations, but none of the {len(tasks)} tasks has one; give a "
            "column named completion, response, demonstration or solution, or take the rollout 'independent'"
        )


def demonstration_segment(task: Task, text: str, prompt: Segment, sampler: Sampler) -> Segment:
    """A demonstration of a task, its end token included, for the policy to learn from: nobody sampled it.

    Raises `UserError` when it does not fit into the model's context.
    """
    token_ids = sampler.encode_completion(task.prompt, text)
    check_length(task, prompt, token_ids, sampler, "demonstration")
    return Segment(actor="demonstration", token_ids=token_ids, trained=True, text=text)


def check_length(task: Task, prompt: Segment, token_ids: IntArray, sampler: Sampler, what: str) -> None:
    """Raise `UserError` when a text that came with a task does not fit into the model's context after its prompt."""
    if len(prompt) + len(token_ids) > sampler.context:
        raise UserError(
            f"task {task.key}: prompt ({len(prompt)} tokens) and {what} ({len(token_ids)}) together pass the "
            f"model's context of {sampler.context} tokens; shorten or leave out the row"
        )
