"""Reinforcement learning: the loop.

    tasks -> curriculum -> rollout -> reward -> filter -> advantage -> pack -> learner
                 ^                                                               |
                 +------------- observe            new weights, version v+1 <----+

Each role that learns has a line of its own from the advantage on (`posttrain.stages.rl.roles`). The loop knows
contracts only. A method is a choice of what stands in the fields below, never a branch here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, PositiveInt

from posttrain.component import frozen
from posttrain.components.advantages import Advantage
from posttrain.components.corrections import Correction
from posttrain.components.curricula import Curriculum
from posttrain.components.filters import Filter
from posttrain.components.hooks import Hook
from posttrain.components.objectives import Objective
from posttrain.components.penalties import Penalty
from posttrain.components.reducers import Reducer
from posttrain.components.rewards import Reward, RewardContext
from posttrain.components.rollouts import Rollout
from posttrain.components.selections import Selection
from posttrain.components.tasks import Tasks
from posttrain.engines import wait_for
from posttrain.models import Model
from posttrain.signals import Signal
from posttrain.stages import Models, PreviewContext, Stage, StageContext
from posttrain.stages.fit import Step, fit
from posttrain.stages.needs import Need
from posttrain.stages.prompts import check_prompts
from posttrain.stages.rl.collect import collect_groups, filter_groups, learned_by, stop_if_grading_fails, unaided
from posttrain.stages.rl.metrics import describe, metrics_by_role
from posttrain.stages.rl.roles import (
    RoleLearning,
    check_hooks,
    columns_for,
    initial_memory,
    needed_by,
    role_states,
    roles_of,
    steps_of,
    trainings_of,
    updates_of,
    warmup_of,
)
from posttrain.stages.rl.update import make_learners
from posttrain.training.settings import Learning
from posttrain.types import Group, Task

Share = Annotated[float, Field(gt=0.0, le=1.0)]


@frozen
class RL(Stage):
    """Sample, score, give credit, update; and again."""

    RENAMED: ClassVar = {"upkeep": "hooks"}

    steps: PositiveInt
    """Rounds of sampling and learning."""
    prompts: PositiveInt
    """Tasks in each round."""
    curriculum: Curriculum
    rollout: Rollout
    reward: Reward
    advantage: Advantage
    objective: Objective
    reducer: Reducer
    filters: Mapping[str, Filter] = field(default_factory=dict)
    """By name, applied in order."""
    penalties: Mapping[str, Penalty] = field(default_factory=dict)
    """By name, each in the loss or in the reward."""
    correction: Correction | None = None
    """Importance weights for an engine whose probabilities are not the learner's."""
    learner: Learning = Learning()
    """How the policy, and any other role that writes trained tokens, is updated. The policy learns from trained
    demonstrations too."""
    by_role: Mapping[str, RoleLearning] = field(default_factory=dict)
    """Roles that learn differently. Each role is given credit by itself, for the attempts that it learns from."""
    hooks: Mapping[str, Hook] = field(default_factory=dict)
    """By name, in order: changes of the models after a step, such as copies and averages."""
    critic: Objective | None = None
    """Loss of the role ``critic``, for advantages that need values."""
    critic_learner: Learning = Learning()
    """How the critic is updated."""
    old_logp: Literal["sampled", "recomputed"] = "sampled"
    """Log-probabilities that ratios are taken against: the sampler's, or computed again by the learner first. Those of
    demonstrations, which nobody sampled, are always the learner's."""
    tasks: Tasks | None = None
    """Problems of this stage; None takes the recipe's."""
    selection: Selection | None = None
    """Which of them are trained on, chosen once with the models as the stage finds them; None takes all."""
    max_grader_errors: Share = 0.5
    """Share of failed judgements in one step at which the run stops."""

    @property
    def roles(self) -> frozenset[str]:
        """Roles that this stage updates, compares with, samples from or judges by."""
        return roles_of(self) | (self.selection.roles if self.selection else frozenset())

    @property
    def needs(self) -> frozenset[Signal]:
        """Signals to compute before credit is given, for one role or another."""
        return frozenset().union(*(columns_for(self, role) for role in {"policy", *self.by_role}))

    def needed(self, models: Mapping[str, Model]) -> Sequence[Need]:
        """What every part needs, for each role that learns."""
        return needed_by(self, models)

    def check(self, models: Models, tasks: Sequence[Task]) -> None:
        """Every prompt must be there and leave room for an answer."""
        check_prompts(models["policy"], tasks, f"the {self.kind} stage")
        self.rollout.check(tasks)
        check_hooks(self.hooks, models)

    def total_steps(self, tasks: Sequence[Task]) -> int:
        """As many as are asked for."""
        return self.steps

    def run(self, models: Models, context: StageContext) -> Models:
        """Train for the rounds that are left, and return the models with their new weights."""
        trainings = trainings_of(self, context.model_settings)
        learners = make_learners(updates_of(trainings), models, steps_of(trainings, self.steps), seed=context.seed)
        memory = context.memory or initial_memory(self, trainings)
        states = role_states(models, learners, memory["roles"], trainings)
        warmup = warmup_of(trainings)
        for step in fit(context, models, learners, steps=self.steps, memory=memory):
            with context.phase("sample"):
                before = context.sampled_tokens(models)
                groups = self._collect(models, context, step, memory)
                sampled = context.sampled_tokens(models) - before
            context.attempts = groups
            step.record.metrics |= metrics_by_role(groups) | {"sampled_tokens": float(sampled)}
            stop_if_grading_fails(groups, self.max_grader_errors)
            memory["curriculum"] = self.curriculum.observe(memory["curriculum"], unaided(learned_by("policy", groups)))
            kept = filter_groups(self.filters, memory["filters"], groups, step.record)
            for role, training in trainings.items():
                if training.due(step.index, warmup):
                    training.update(kept, models, learners, memory["roles"][role], step, context.phase)
            step.record.drop_rest(kept, "the role that it would teach is not updated in this step")
            for hook in self.hooks.values():
                hook(step.index + 1, states)
        return models

    def _collect(self, models: Models, context: StageContext, step: Step, memory: dict[str, Any]) -> list[Group]:
        """Choose the step's tasks, attempt and judge them."""
        memory["curriculum"], tasks = self.curriculum.select(
            memory["curriculum"], context.tasks, self.prompts, seed=context.seed, step=step.index
        )
        asked = RewardContext(progress=step.progress, step=step.index, state=memory["reward"])
        samplers = [context.samplers(models, step.index, place) for place in range(len(tasks))]
        return wait_for(collect_groups(tasks, self.rollout.at(step.progress), self.reward, samplers, asked))

    def preview(self, models: Models, context: PreviewContext) -> list[str]:
        """Sample and judge the first step's tasks, and say what came of it."""
        _, tasks = self.curriculum.select(
            self.curriculum.start(), context.tasks, self.prompts, seed=context.seed, step=0
        )
        samplers = [context.samplers(models, 0, place) for place in range(len(tasks))]
        return describe(wait_for(collect_groups(tasks, self.rollout, self.reward, samplers, RewardContext())))
