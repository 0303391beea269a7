"""Rounds in which a policy samples and another model learns from its scored rollouts."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from posttrain.components.rewards import Reward, RewardContext
from posttrain.components.rollouts import Rollout
from posttrain.datasets.order import shuffled
from posttrain.engines import wait_for
from posttrain.stages import Models, PreviewContext, StageContext
from posttrain.stages.fit import Step
from posttrain.stages.rl.collect import collect_groups, split_failed, stop_if_grading_fails
from posttrain.stages.rl.metrics import metrics_by_role
from posttrain.types import Group

if TYPE_CHECKING:
    from posttrain.training.packing import Example


def collect_round(
    models: Models, context: PreviewContext, step: int, *, rollout: Rollout, reward: Reward, batch: int
) -> list[Group]:
    """The scored groups of `batch` tasks, drawn for the step."""
    tasks = [context.tasks[i] for i in shuffled(len(context.tasks), batch, step, context.seed)]
    samplers = [context.samplers(models, step, place) for place in range(len(tasks))]
    return wait_for(collect_groups(tasks, rollout, reward, samplers, RewardContext(step=step)))


def learn_from_rounds(
    models: Models,
    context: StageContext,
    collect: Callable[[int], list[Group]],
    examples_of: "Callable[[Sequence[Group]], list[Example]]",
    max_grader_errors: float,
) -> "Callable[[Step], list[Example]]":
    """What gives the examples of a step: samples and records its rollouts, and leaves out those without a score.

    Stops the run at a share of `max_grader_errors` that could not be scored.
    """

    def examples(step: Step) -> "list[Example]":
        with context.phase("sample"):
            before = context.sampled_tokens(models)
            groups = collect(step.index)
        context.groups = groups
        step.record.metrics |= metrics_by_role(groups)
        step.record.metrics["sampled_tokens"] = float(context.sampled_tokens(models) - before)
        stop_if_grading_fails(groups, max_grader_errors)
        return examples_of(split_failed(groups)[0])

    return examples
