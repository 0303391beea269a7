"""Rounds in which a policy samples and another model learns from its scored rollouts."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from posttrain.components.reducers import Reducer
from posttrain.components.rewards import Reward, RewardContext
from posttrain.components.rollouts import Rollout
from posttrain.datasets.order import shuffled
from posttrain.engines import wait_for
from posttrain.signals import SCORE
from posttrain.stages import Models, PreviewContext, StageContext
from posttrain.stages.fit import Step, fit_role
from posttrain.stages.needs import Need, needs_of
from posttrain.stages.prompts import check_prompts
from posttrain.stages.rl.collect import collect_groups, split_failed, stop_if_grading_fails
from posttrain.stages.rl.metrics import describe, metrics_by_role
from posttrain.training.settings import Learning
from posttrain.types import Group, PerToken, Task, Tokens

if TYPE_CHECKING:
    from posttrain.training.packing import Example


@dataclass(frozen=True, kw_only=True)
class ScoredRounds:
    """Training of the model in `role`, with a reward head, on rollouts of the policy."""

    kind: str
    """Of the stage."""
    role: str
    per_token: Callable[[Tokens], PerToken]
    """The loss."""
    examples_of: "Callable[[Sequence[Group]], list[Example]]"
    """What is learned from the groups of a round."""
    reducer: Reducer
    rollout: Rollout
    reward: Reward
    batch: int
    steps: int
    learning: Learning
    max_grader_errors: float

    @property
    def roles(self) -> frozenset[str]:
        """The model that learns, and the roles that sample and score."""
        return frozenset({"policy", self.role}) | self.rollout.roles | self.reward.roles

    @property
    def needed(self) -> Sequence[Need]:
        """The scores of the model that learns, and the needs of the rollout and the reward."""
        own = Need(signal=SCORE, role=self.role, path="role", setting="role")
        parts = (("rollout", self.rollout), ("reward", self.reward))
        return [own, *(need for path, part in parts for need in needs_of(path, part, role="policy"))]

    def check(self, models: Models, tasks: Sequence[Task]) -> None:
        """Prompts must leave room for an answer."""
        check_prompts(models["policy"], tasks, f"the {self.kind} stage")
        self.rollout.check(tasks)

    def run(self, models: Models, context: StageContext) -> Models:
        """Sample and learn, and return the models with the new weights."""
        from posttrain.training.learner import Loss

        loss = Loss(per_token=self.per_token, reducer=self.reducer, needs=frozenset({SCORE}))
        return fit_role(
            context,
            models,
            role=self.role,
            learning=self.learning,
            loss=loss,
            steps=self.steps,
            examples=lambda step: self._examples(models, context, step),
        )

    def preview(self, models: Models, context: PreviewContext) -> list[str]:
        """Sample and score the first step's tasks, and describe the rollouts."""
        return describe(self._groups(models, context, 0))

    def _groups(self, models: Models, context: PreviewContext, step: int) -> list[Group]:
        """The scored groups of `batch` tasks, drawn for the step."""
        tasks = [context.tasks[i] for i in shuffled(len(context.tasks), self.batch, step, context.seed)]
        samplers = [context.samplers(models, step, place) for place in range(len(tasks))]
        return wait_for(collect_groups(tasks, self.rollout, self.reward, samplers, RewardContext(step=step)))

    def _examples(self, models: Models, context: StageContext, step: Step) -> "list[Example]":
        """Sample and record the rollouts of a step, and leave out those without a score.

        Stops the run at a share of `max_grader_errors` that could not be scored.
        """
        with context.phase("sample"):
            before = context.sampled_tokens(models)
            groups = self._groups(models, context, step.index)
        context.groups = groups
        step.record.metrics |= metrics_by_role(groups)
        step.record.metrics["sampled_tokens"] = float(context.sampled_tokens(models) - before)
        stop_if_grading_fails(groups, self.max_grader_errors)
        return self.examples_of(split_failed(groups)[0])
