"""Reinforcement: the loop.

    tasks -> curriculum -> rollout -> reward -> filter -> advantage -> pack -> learner
                 ^                                                               |
                 +------------- observe            new weights, version v+1 <----+

It knows contracts only. A method is a choice of what stands in the fields below, never a branch here.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, PositiveInt

from posttrain.advantages import Advantage
from posttrain.component import frozen
from posttrain.corrections import Correction
from posttrain.curricula import Curriculum
from posttrain.filters import Filter
from posttrain.objectives import Objective
from posttrain.penalties import Penalty
from posttrain.reducers import Reducer
from posttrain.rewards import Reward, RewardContext
from posttrain.rollouts import Rollout
from posttrain.runs.record import StepRecord
from posttrain.stages import Models, Stage
from posttrain.stages._experience import (
    OF_THE_FORWARD_PASS,
    batch_of,
    collect,
    columns_of,
    combine,
    describe,
    rollout_metrics,
    set_aside_failed,
    signal_metrics,
    signals_for,
    stop_if_grading_fails,
)
from posttrain.tasks import Tasks
from posttrain.training.settings import Learning
from posttrain.types import Group, Task

if TYPE_CHECKING:
    from posttrain.runs.bench import StageBench
    from posttrain.runs.run import StageRun
    from posttrain.training.learner import Learner

Share = Annotated[float, Field(gt=0.0, le=1.0)]


@frozen
class RL(Stage):
    """Sample, judge, give credit, update; and again."""

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
    """How the policy, and any other role that writes trained tokens, is updated."""
    critic: Objective | None = None
    """Loss of the role ``critic``, for advantages that need values."""
    critic_learner: Learning = Learning()
    """How the critic is updated."""
    old_logp: Literal["sampled", "recomputed"] = "sampled"
    """Log-probabilities that ratios are taken against: the sampler's, or computed again by the learner first."""
    tasks: Tasks | None = None
    """Problems of this stage; None takes the recipe's."""

    max_grader_errors: Share = 0.5
    """Share of failed judgements in one step at which the run stops."""

    @property
    def roles(self) -> frozenset[str]:
        """Roles that this stage updates or compares with; rollouts and rewards may use others that are loaded."""
        references = {need.removesuffix("_logp") for need in self.needs if need.endswith("_logp")}
        return frozenset({"policy"} | (references - {"old"}) | ({"critic"} if self.critic else set()))

    @property
    def needs(self) -> frozenset[str]:
        """Signals to compute before credit is given."""
        wanted = self.advantage.needs.union(self.objective.needs, *(p.needs for p in self.penalties.values()))
        wanted |= {"old_logp"} if self.old_logp == "recomputed" else set()
        return wanted - {"entropy"} | ({"value"} if self.critic else set())

    def total_steps(self, tasks: Sequence[Task]) -> int:
        """As many as are asked for."""
        return self.steps

    def run(self, models: Models, run: "StageRun") -> Models:
        """Train for the rounds that are left, and return the models with their new weights."""
        learners = self._learners(models, run)
        memory = run.memory or {
            "curriculum": self.curriculum.start(),
            "advantage": self.advantage.start(),
            "filters": {name: member.start() for name, member in self.filters.items()},
            "reward": {},
        }
        for step in range(run.steps_done, self.steps):
            progress, record = step / self.steps, StepRecord()
            with run.phase("sample"):
                memory["curriculum"], tasks = self.curriculum.select(
                    memory["curriculum"], run.tasks, self.prompts, seed=run.seed, step=step
                )
                context = RewardContext(progress=progress, step=step, state=memory["reward"])
                samplers = [run.samplers(models, step, place) for place in range(len(tasks))]
                groups = asyncio.run(collect(tasks, self.rollout, self.reward, samplers, context))
            record.metrics |= rollout_metrics(groups)
            stop_if_grading_fails(groups, self.max_grader_errors)
            memory["curriculum"] = self.curriculum.observe(memory["curriculum"], groups)
            kept = self._filter(memory, groups, record)
            if kept:
                self._learn(models, learners, memory, kept, progress, record, run)
            run.finish_step(step + 1, record, memory, learners, models)
        return models

    def preview(self, models: Models, run: "StageBench") -> list[str]:
        """Sample and judge the first step's tasks, and say what came of it."""
        _, tasks = self.curriculum.select(self.curriculum.start(), run.tasks, self.prompts, seed=run.seed, step=0)
        samplers = [run.samplers(models, 0, place) for place in range(len(tasks))]
        return describe(asyncio.run(collect(tasks, self.rollout, self.reward, samplers, RewardContext())))

    def _learners(self, models: Models, run: "StageRun") -> "dict[str, Learner]":
        """One learner for each role that this stage trains, with the state of the checkpoint if there is one."""
        from posttrain.training.learner import Learner

        roles = [role for role in models if run.recipe.models[role].trained and (role != "critic" or self.critic)]
        settings = {role: self.critic_learner if role == "critic" else self.learner for role in roles}
        learners = {role: Learner(models[role], settings[role], seed=run.seed, num_steps=self.steps) for role in roles}
        run.restore(learners)
        return learners

    def _filter(self, memory: dict[str, Any], groups: Sequence[Group], record: StepRecord) -> list[Group]:
        """The groups to learn from; what is left out goes into the record with its reason."""
        kept, dropped = set_aside_failed(groups)
        for name, member in self.filters.items():
            memory["filters"][name], kept, more = member(memory["filters"][name], kept)
            dropped += more
        for offset, item in enumerate(dropped):
            record.drop(item.group, item.reason, index=len(kept) + offset)
        return kept

    def _learn(
        self,
        models: Models,
        learners: "Mapping[str, Learner]",
        memory: dict[str, Any],
        groups: Sequence[Group],
        progress: float,
        record: StepRecord,
        run: "StageRun",
    ) -> None:
        """Give credit and update every trained role; what was seen goes into the record."""
        from posttrain.training.learner import Loss
        from posttrain.training.packing import example_of

        trajectories = [t for group in groups for t in group]
        temperature, max_tokens = self.rollout.temperature, self.learner.micro_batch_tokens
        with run.phase("signals"):
            signals = signals_for(trajectories, self.needs, models, max_tokens=max_tokens, temperature=temperature)
        batch = batch_of(groups, signals, self.penalties, progress)
        memory["advantage"], credit = self.advantage(memory["advantage"], batch)
        record.metrics |= signal_metrics(trajectories, signals) | dict(credit.metrics)
        columns = columns_of(batch, credit)
        with run.phase("learn"):
            for role, learner in learners.items():
                objective = self.critic if role == "critic" and self.critic else self.objective
                penalties = {} if role == "critic" else self.penalties
                loss = Loss(
                    per_token=combine(objective, penalties, None if role == "critic" else self.correction),
                    reducer=self.reducer,
                    needs=objective.needs.union(*(p.needs for p in penalties.values())) & OF_THE_FORWARD_PASS,
                    temperature=temperature,
                )
                writer = None if role == "critic" else role
                examples = [
                    example_of(t, own, group=int(g), actor=writer)
                    for t, own, g in zip(trajectories, columns, batch.group_N, strict=True)
                ]
                learned = learner.step(examples, loss, progress=progress)
                record.learn(role, trajectories, [int(g) for g in batch.group_N], columns, learned)
