"""Reinforcement learning: the loop.

    tasks -> curriculum -> rollout -> reward -> filter -> advantage -> pack -> learner
                 ^                                                               |
                 +------------- observe            new weights, version v+1 <----+

Each role that learns has a line of its own from the advantage on (`posttrain.stages.rl.roles`). The loop knows
contracts only. A method is a choice of what stands in the fields below, never a branch here.
"""

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field, PositiveInt

from posttrain.component import Component, frozen
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
from posttrain.signals import OLD_LOGP, OLD_VALUE, Signal, columns_in, roles_in
from posttrain.stages import Models, PreviewContext, Stage, StageContext
from posttrain.stages.fit import Step, fit
from posttrain.stages.needs import Need, needs_of
from posttrain.stages.prompts import check_prompts
from posttrain.stages.rl.collect import collect_groups, filter_groups, learned_by, stop_if_grading_fails, unaided
from posttrain.stages.rl.metrics import describe, metrics_by_role
from posttrain.stages.rl.roles import (
    RoleLearning,
    RoleTraining,
    check_hooks,
    check_roles,
    role_states,
    steps_of,
    updates_of,
    warmup_of,
)
from posttrain.stages.rl.update import Update, make_learners
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
        learned = {"policy", *self.by_role}
        compared = roles_in(frozenset().union(*(self._declared(role) for role in learned)))
        critics = {own.critic for own in self.by_role.values() if own.critic} | ({"critic"} if self.critic else set())
        hooked = frozenset().union(*(hook.roles for hook in self.hooks.values()))
        asked = self.rollout.roles | self.reward.roles | (self.selection.roles if self.selection else frozenset())
        return frozenset(learned | compared | critics | hooked | asked)

    @property
    def needs(self) -> frozenset[Signal]:
        """Signals to compute before credit is given, for one role or another."""
        return columns_in(frozenset().union(*(self._declared(role) for role in {"policy", *self.by_role})))

    def needed(self, models: Mapping[str, Model]) -> Sequence[Need]:
        """What every part needs, for each role that learns."""
        sampling = [("rollout", self.rollout), ("reward", self.reward), ("selection", self.selection)]
        found = [need for path, part in sampling for need in needs_of(path, part, role="policy")]
        for role in self._writers(models):
            found += self._needed_by(role)
        return found

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
        trainings = {role: self._training(role) for role in self._writers(context.model_settings)}
        learners = make_learners(updates_of(trainings), models, steps_of(trainings, self.steps), seed=context.seed)
        memory = context.memory or self._initial_memory(trainings)
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

    def _initial_memory(self, trainings: Mapping[str, RoleTraining]) -> dict[str, Any]:
        """The state of every part that has one, before the first step."""
        return {
            "curriculum": self.curriculum.start(),
            "filters": {name: member.start() for name, member in self.filters.items()},
            "reward": {},
            "roles": {role: training.start() for role, training in trainings.items()},
        }

    def _writers(self, models: Mapping[str, Model]) -> list[str]:
        """The trained roles that write, the policy first. Raises `UserError` for settings of roles that do not."""
        writers = {name for name, model in models.items() if model.trained and model.head == "language"}
        check_roles(self.by_role, writers, self.critic)
        return sorted(writers, key=lambda role: (role != "policy", role))

    def _learning(self, role: str) -> RoleLearning:
        """How a role learns: its own settings, then those of the stage."""
        own = self.by_role.get(role, RoleLearning())
        critic = "critic" if role == "policy" and self.critic is not None else None
        return replace(
            own,
            advantage=own.advantage or self.advantage,
            objective=own.objective or self.objective,
            learner=own.learner or self.learner,
            critic=own.critic or critic,
        )

    def _declared(self, role: str) -> frozenset[Signal]:
        """Signals that a role's components declare, and those that the settings of the stage need."""
        own = self._learning(role)
        assert own.advantage is not None and own.objective is not None, "see _learning"
        wanted = own.advantage.needs.union(own.objective.needs, *(p.needs for p in self.penalties.values()))
        wanted |= {OLD_LOGP} if self.old_logp == "recomputed" else set()
        wanted |= self.correction.needs if self.correction is not None else set()
        if own.critic is not None and self.critic is not None:
            wanted |= self.critic.needs | {OLD_VALUE}
        return wanted

    def _needed_by(self, role: str) -> list[Need]:
        """What the components by which a role learns need, each with its path."""
        own, learning, mine = self.by_role.get(role, RoleLearning()), self._learning(role), f"by_role.{role}."
        critic = learning.critic or "critic"
        parts: list[tuple[str, Component | None]] = [
            (f"{mine if own.advantage else ''}advantage", learning.advantage),
            (f"{mine if own.objective else ''}objective", learning.objective),
            *((f"penalties.{name}", penalty) for name, penalty in self.penalties.items()),
            ("correction", self.correction),
        ]
        found = [need for path, part in parts for need in needs_of(path, part, role=role, critic=critic)]
        if self.old_logp == "recomputed":
            found.append(Need(signal=OLD_LOGP, asked=role, path="old_logp"))
        if learning.critic is not None and self.critic is not None:
            found.append(Need(signal=OLD_VALUE, asked=critic, path="critic"))
            found += needs_of("critic", self.critic, role=role, critic=critic, trained=critic)
        return found

    def _training(self, role: str) -> RoleTraining:
        """How a role is trained; a critic is trained on what its role wrote."""
        own = self._learning(role)
        assert own.advantage is not None and own.objective is not None and own.learner is not None, "see _learning"
        temperature = self.rollout.temperature
        updates = {
            role: Update(
                learning=own.learner,
                objective=own.objective,
                reducer=self.reducer,
                correction=self.correction,
                role=role,
                temperature=temperature,
            )
        }
        if own.critic is not None and self.critic is not None:
            updates[own.critic] = Update(
                learning=self.critic_learner, objective=self.critic, reducer=self.reducer, penalized=False
            )
        return RoleTraining(
            role=role,
            advantage=own.advantage,
            penalties=self.penalties,
            needs=columns_in(self._declared(role)),
            updates=updates,
            critic=own.critic,
            temperature=temperature,
            every=own.every,
            warmup_steps=own.warmup_steps,
        )
