"""Reinforcement learning: the loop.

    tasks -> curriculum -> rollout -> reward -> filter -> advantage -> pack -> learner
                 ^                                                               |
                 +------------- observe            new weights, version v+1 <----+

Advantages and updates are separate for each role that learns (`posttrain.stages.rl.roles`). The loop uses contracts
only: a method sets the fields below and never needs a branch here.
"""

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import field, replace
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import Field, PositiveInt

from posttrain.component import Component, frozen
from posttrain.components.advantages import Advantage
from posttrain.components.balances import Balance
from posttrain.components.corrections import Correction
from posttrain.components.curricula import Curriculum
from posttrain.components.experts import Experts
from posttrain.components.filters import Filter
from posttrain.components.hooks import Hook
from posttrain.components.objectives import Objective
from posttrain.components.penalties import Penalty
from posttrain.components.reducers import Reducer
from posttrain.components.rewards import Reward, RewardAudit, RewardContext
from posttrain.components.rollouts import Rollout
from posttrain.components.selections import Selection
from posttrain.components.tasks import Tasks
from posttrain.components.timetables import Timetable
from posttrain.engines import wait_for
from posttrain.models import Model
from posttrain.signals import OLD_LOGP, OLD_VALUE, SCORE, Signal, columns_in, roles_in
from posttrain.stages import Models, PreviewContext, Stage, StageContext
from posttrain.stages.fit import Step, fit
from posttrain.stages.needs import Need, needs_of
from posttrain.stages.prompts import check_prompts
from posttrain.stages.rl.ahead import Collected
from posttrain.stages.rl.arrivals import arrivals
from posttrain.stages.rl.choosing import Choosing, check_pool, visits
from posttrain.stages.rl.collect import collect_groups, describe_failures, learned_by, record_filtered
from posttrain.stages.rl.collecting import Collecting
from posttrain.stages.rl.imitation import BALANCE, EXPERTS, Imitation, Taught, check_experts
from posttrain.stages.rl.metrics import describe, metrics_by_role
from posttrain.stages.rl.refill import Refill, check_streams
from posttrain.stages.rl.reward_audit import audited
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
from posttrain.stages.rl.together import lists_of, pool_of
from posttrain.stages.rl.update import Update, make_learners
from posttrain.training.settings import Learning
from posttrain.types import Task

Share = Annotated[float, Field(gt=0.0, le=1.0)]

PREVIEWED = 1024
"""Rollouts that a dry run samples, at most."""
_STEP = 0x5374
"""Separates the draw of a step from others of the same seed."""


@frozen
class RL(Stage):
    """Reinforcement learning: sample, score, assign credit, update, repeat."""

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
    refill: Refill | None = None
    """How a batch is filled: sampling again until enough groups pass the filters, groups of earlier steps; None trains
    on what is left of those of the step."""
    penalties: Mapping[str, Penalty] = field(default_factory=dict)
    """By name; each acts in the loss or in the reward."""
    correction: Correction | None = None
    """Importance weights for an engine whose probabilities differ from the learner's."""
    learner: Learning = Learning()
    """How the policy and other roles that sample trained tokens are updated. The policy also learns from trained
    demonstrations."""
    experts: Experts | None = None
    """Demonstrations that the policy learns from in each step, beside its rollouts. The objective and the reducer of
    demonstrated tokens are those of ``by_origin``."""
    balance: Balance | None = None
    """Weights of the losses of rollouts and of demonstrations in each step; None gives 1 to both."""
    expert_learner: Learning | None = None
    """How the policy is updated with demonstrations of `experts`, in an update of its own after that with rollouts,
    with its own moments, clipping and rate; None has one update with the sum of both losses."""
    by_role: Mapping[str, RoleLearning] = field(default_factory=dict)
    """Roles that learn differently. Advantages are computed for each role over the rollouts that it learns from."""
    hooks: Mapping[str, Hook] = field(default_factory=dict)
    """By name, in order; what they do to models after a step: copy, swap, average, reset the optimizer."""
    critic: Objective | None = None
    """Loss of the role ``critic``, for advantages that need values."""
    critic_learner: Learning = Learning()
    """How the critic is updated, and a model of the curriculum."""
    old_logp: Literal["sampled", "recomputed"] = "sampled"
    """Denominator of ratios: the sampler's log-probabilities, or those that the learner recomputes before the update.
    Those of demonstrations, which were not sampled, are always the learner's."""
    tasks: Tasks | None = None
    """Tasks of this stage; None takes the recipe's."""
    selection: Selection | None = None
    """Which tasks are trained on, chosen once with the models at the start of the stage; None takes all."""
    audit: RewardAudit | None = RewardAudit()
    """Of a reward that uses a model: texts without content must not outrank right answers. None has no audit."""
    max_grader_errors: Share = 0.5
    """Share of a step's rollouts that could not be scored, at which the run stops."""

    @property
    def roles(self) -> frozenset[str]:
        """Roles that this stage updates, compares with, samples from or scores with."""
        learned = {"policy", *self.by_role}
        compared = roles_in(frozenset().union(*(self._declared(role) for role in learned)))
        critics = {own.critic for own in self.by_role.values() if own.critic} | ({"critic"} if self.critic else set())
        hooked = frozenset().union(*(hook.roles for hook in self.hooks.values()))
        used = self.rollout.roles | self.reward.roles | self.curriculum.roles
        used |= self.selection.roles if self.selection else frozenset()
        asked = frozenset().union(*(self._advantage_of(role).roles for role in learned))
        return frozenset(learned | compared | critics | hooked | used | self.learner.optimizer.roles | asked)

    @property
    def samples_ahead(self) -> bool:
        """It does."""
        return True

    @property
    def needs(self) -> frozenset[Signal]:
        """Signals to compute before advantages, for any role that learns."""
        return columns_in(frozenset().union(*(self._declared(role) for role in {"policy", *self.by_role})))

    def needed(self, models: Mapping[str, Model]) -> Sequence[Need]:
        """The needs of every part, for each role that learns."""
        sampling = [("rollout", self.rollout), ("reward", self.reward), ("selection", self.selection)]
        found = [need for path, part in sampling for need in needs_of(path, part, role="policy")]
        for role in self._writers(models):
            found += self._needed_by(role)
        if self.curriculum.taught is not None:
            found.append(Need(signal=SCORE, role=self.curriculum.taught, path="curriculum", setting="curriculum.role"))
        return found

    def check(self, models: Models, tasks: Sequence[Task]) -> None:
        """Every task must have a prompt that leaves room for an answer."""
        check_prompts(models["policy"], tasks, f"the {self.kind} stage", self.rollout)
        if not self.written("rated completions"):
            self.rollout.check(tasks)
        self.reward.check(tasks)
        lists = lists_of(self.reward, tasks, self.rollout, refilled=self.refill is not None)
        self.curriculum.check(pool_of(lists, tasks), self.prompts)
        check_hooks(self.hooks, models)
        own = self.experts is not None and self.experts.source is None
        if own or any(need.shows for need in self.needs):
            check_experts(models, tasks)

    def notes(self, tasks: Sequence[Task]) -> Sequence[str]:
        """Those of the curriculum, and of the reward and its audit."""
        lists = self._choosing(tasks).lists
        drawn = [lists.note(self.prompts)] if lists is not None else []
        return [*self.curriculum.notes(pool_of(lists, tasks)), *self.audited_reward.notes(tasks), *drawn]

    @property
    def audited_reward(self) -> Reward:
        """What scores the rollouts of the loop."""
        return audited(self.reward, self.audit)

    def check_timetable(self, timetable: Timetable) -> None:
        """Streaming fills batches itself, and goes on with groups itself."""
        check_streams(timetable, self.refill)

    @property
    def further(self) -> Mapping[str, Tasks]:
        """The tasks that demonstrations are from, if they are not those of the stage."""
        sources = {
            EXPERTS: self.experts.source if self.experts is not None else None,
            BALANCE: self.balance.source if self.balance is not None else None,
        }
        return {name: source for name, source in sources.items() if source is not None}

    def check_further(self, name: str, models: Models, tasks: Sequence[Task]) -> None:
        """Demonstrations must be there, and fit into the model's context."""
        check_experts(models, tasks)

    def total_steps(self, tasks: Sequence[Task]) -> int:
        """The setting `steps`."""
        return self.steps

    def run(self, models: Models, context: StageContext) -> Models:
        """Train for the remaining steps, and return the models with their new weights."""
        writers = [role for role in self._writers(context.model_settings) if role in models]
        trainings = {role: self._training(role) for role in writers}
        choosing = self._choosing(context.tasks)
        learners = make_learners(updates_of(trainings), models, steps_of(trainings, self.steps), seed=context.seed)
        learners |= choosing.learners(models, seed=context.seed, steps=self.steps)
        imitation = self._imitation(context)
        memory = context.memory or self._initial_memory(trainings) | imitation.start()
        if not context.memory:
            self._prepare(models, context, memory, trainings)
        check_pool(memory, context.tasks, context.name)
        states = role_states(models, learners, memory["roles"], trainings)
        warmup = warmup_of(trainings)
        with closing(arrivals(self._collecting(models, context, memory, choosing))) as coming:
            context.before_saving(coming.store)
            for step in fit(context, models, learners, steps=self.steps, memory=memory):
                shares = imitation.shares(memory, step.index)
                for role in trainings:
                    models[role].at(step.progress)
                with context.phase("sample"):
                    context.groups = []
                    found = coming.take(step.index) if shares.sampled or coming.always else Collected()
                    found = found if shares.sampled else found.unused()
                    context.groups = groups = found.groups
                    kept = found.kept
                step.record.metrics |= found.metrics
                record_filtered(step.record, groups, kept, found.dropped)
                step.record.metrics |= metrics_by_role(groups) | {"sampled_tokens": float(found.sampled)}
                targets = choosing.observe(memory, learned_by("policy", groups), step)
                shown = imitation.choose(memory, groups, shares, models["policy"], step.index)
                epochs = self.refill.epochs(step.index) if self.refill is not None else None
                validation = imitation.validation(models["policy"], shares, step.index)
                critic, idle = self._critics(context, step)
                taught = Taught(
                    shown=shown, shares=shares, validation=validation, critic=critic, idle=idle, epochs=epochs
                )
                for role, training in trainings.items():
                    if training.due(step.index, warmup):
                        own = taught if role == "policy" else Taught(shares=shares, idle=idle, epochs=epochs)
                        training.heated(self.rollout.at(step.progress).temperature).update(
                            kept, own, models, learners, memory["roles"][role], step, context.phase
                        )
                choosing.teach(targets, models, learners, step)
                imitation.observe(memory, shares, step.record.metrics)
                step.record.drop_rest(kept, "the role that it would teach is not updated in this step")
                with context.phase("sample"):
                    coming.settle()
                for state in states.values():
                    state.groups = kept
                for hook in self.hooks.values():
                    hook(step.index + 1, states)
        return models

    def _collecting(
        self, models: Models, context: StageContext, memory: dict[str, Any], choosing: Choosing
    ) -> Collecting:
        """How the rollouts of a step are had."""
        return Collecting(
            models=models,
            context=context,
            memory=memory,
            choosing=choosing,
            rollout=lambda step: choosing.joined(self._rollout_of(context, step)),
            reward=self.audited_reward,
            filters=self.filters,
            refill=self.refill,
            prompts=self.prompts,
            steps=self.steps,
            tags=self._tags,
            max_grader_errors=self.max_grader_errors,
        )

    def _prepare(
        self, models: Models, context: StageContext, memory: dict[str, Any], trainings: Mapping[str, RoleTraining]
    ) -> None:
        """Prepare advantages with rollouts of the first step's tasks, which are not learned from."""
        waiting = {role: training.advantage for role, training in trainings.items() if training.advantage.prepares}
        if not waiting:
            return
        choosing = self._choosing(context.tasks)
        tasks = choosing.first(context.tasks, self.prompts, context.seed)
        samplers = [context.samplers(models, "prepare", place) for place in range(len(tasks))]
        rollout = choosing.joined(self.rollout.at(0.0).drawn(0.0))
        groups = wait_for(collect_groups(tasks, rollout, self.reward, samplers, RewardContext()))
        for role, advantage in waiting.items():
            own = memory["roles"][role]
            asked = context.samplers(models, "prepare", role)
            own["advantage"] = wait_for(advantage.prepare(own["advantage"], learned_by(role, groups), asked))

    def _imitation(self, context: StageContext) -> Imitation:
        """What is learned from demonstrations beside the rollouts."""
        pool = context.further.get(EXPERTS, context.tasks)
        return Imitation(
            experts=self.experts,
            balance=self.balance,
            pool=pool,
            validated=context.further.get(BALANCE, pool),
            seed=context.seed,
            steps=self.steps,
        )

    def preview(self, models: Models, context: PreviewContext) -> list[str]:
        """Sample and score tasks of the first step, `PREVIEWED` rollouts at most, and describe them."""
        choosing = self._choosing(context.tasks)
        tasks = choosing.first(context.tasks, self.prompts, context.seed)
        tasks = tasks[: max(1, PREVIEWED // getattr(self.rollout, "n", 1))]
        samplers = [context.samplers(models, 0, place) for place in range(len(tasks))]
        rollout = choosing.joined(self.rollout)
        groups = wait_for(collect_groups(tasks, rollout, self.reward, samplers, RewardContext()))
        if failures := describe_failures(groups):
            context.errors.append(f"stage {context.name}: {failures}")
        seen = visits(self.curriculum, self.steps, self.prompts, len(pool_of(choosing.lists, context.tasks)))
        return describe(groups) + seen + list(self.notes(context.tasks))

    def _choosing(self, tasks: Sequence[Task]) -> Choosing:
        """The curriculum, and what it may use."""
        return Choosing(
            curriculum=self.curriculum,
            rollout=self.rollout,
            reward=self.reward,
            reducer=self.reducer,
            learning=self.critic_learner,
            lists=lists_of(self.reward, tasks, self.rollout, refilled=self.refill is not None),
        )

    def _rollout_of(self, context: StageContext, step: Step) -> Rollout:
        """The rollout with the settings of a step."""
        uniform = np.random.default_rng([context.seed, step.index, _STEP]).random()
        return self.rollout.at(step.progress).drawn(float(uniform))

    def _critics(self, context: StageContext, step: Step) -> tuple[str | None, frozenset[str]]:
        """The critic of the policy's rollouts in a step, and the critics that are not trained in it."""
        if not self.rollout.critics:
            return None, frozenset()
        own = self._learning("policy").critic
        named = self._rollout_of(context, step).critic or own
        return named, (self.rollout.critics | ({own} if own else set())) - {named or ""}

    def _advantage_of(self, role: str) -> Advantage:
        """The estimator of a role."""
        return self.by_role.get(role, RoleLearning()).advantage or self.advantage

    @property
    def _tags(self) -> frozenset[str]:
        """Tags whose token ranges the advantage of any role, or a penalty, reads."""
        own = [learning.advantage.tags for learning in self.by_role.values() if learning.advantage is not None]
        return self.advantage.tags.union(*own, *(penalty.tags for penalty in self.penalties.values()))

    def _initial_memory(self, trainings: Mapping[str, RoleTraining]) -> dict[str, Any]:
        """The state of every part that has one, before the first step."""
        return {
            "curriculum": self.curriculum.start(),
            "filters": {name: member.start() for name, member in self.filters.items()},
            "reward": self.audited_reward.initial,
            "roles": {role: training.start() for role, training in trainings.items()},
        }

    def _writers(self, models: Mapping[str, Model]) -> list[str]:
        """The trained roles that sample text, the policy first. Raises `UserError` for settings of other roles."""
        writers = {name for name, model in models.items() if model.trained and model.head == "language"}
        check_roles(self.by_role, writers, self.critic)
        return sorted(writers, key=lambda role: (role != "policy", role))

    def _learning(self, role: str) -> RoleLearning:
        """Learning settings of a role: its own, and the stage's for those that are None."""
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
        """Signals that a role's components declare, and those that settings of the stage need."""
        own = self._learning(role)
        assert own.advantage is not None and own.objective is not None, "see _learning"
        wanted = own.advantage.needs.union(own.objective.needs, *(p.needs for p in self.penalties.values()))
        wanted |= {OLD_LOGP} if self.old_logp == "recomputed" else set()
        wanted |= self.correction.needs if self.correction is not None else set()
        if own.critic is not None and self.critic is not None:
            wanted |= self.critic.needs | {OLD_VALUE}
        return wanted

    def _needed_by(self, role: str) -> list[Need]:
        """The needs of the components that a role learns with, each with its path."""
        own, learning, prefix = self.by_role.get(role, RoleLearning()), self._learning(role), f"by_role.{role}."
        critic = learning.critic or "critic"
        parts: list[tuple[str, Component | None]] = [
            (f"{prefix if own.advantage else ''}advantage", learning.advantage),
            (f"{prefix if own.objective else ''}objective", learning.objective),
            *((f"penalties.{name}", penalty) for name, penalty in self.penalties.items()),
            ("correction", self.correction),
        ]
        found = [need for path, part in parts for need in needs_of(path, part, role=role, critic=critic)]
        if self.old_logp == "recomputed":
            found.append(Need(signal=OLD_LOGP, role=role, path="old_logp"))
        if learning.critic is not None and self.critic is not None:
            found.append(Need(signal=OLD_VALUE, role=critic, path="critic"))
            found += needs_of("critic", self.critic, role=role, critic=critic, trained=critic)
            others = sorted(self.rollout.critics) if role == "policy" else []
            found += [Need(signal=OLD_VALUE, role=other, path="rollout") for other in others]
        return found

    def _training(self, role: str) -> RoleTraining:
        """How a role is trained. A critic is trained on the rollouts of its role."""
        own = self._learning(role)
        assert own.advantage is not None and own.objective is not None and own.learner is not None, "see _learning"
        temperature = self.rollout.temperature
        update = Update(
            learning=own.learner,
            objective=own.objective,
            reducer=self.reducer,
            correction=self.correction,
            role=role,
            temperature=temperature,
        )
        updates = {role: update}
        if role == "policy" and self.experts is not None and self.expert_learner is not None:
            updates[role] = replace(update, rows="rollouts")
            updates[EXPERTS] = replace(update, rows="experts", learning=self.expert_learner, model=role)
        if own.critic is not None and self.critic is not None:
            for name in sorted({own.critic, *(self.rollout.critics if role == "policy" else ())}):
                updates[name] = Update(
                    learning=self.critic_learner,
                    objective=self.critic,
                    reducer=self.reducer,
                    penalized=False,
                    rows="rollouts",
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
