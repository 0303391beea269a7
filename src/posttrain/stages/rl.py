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
    batch_of,
    collect,
    describe,
    filter_groups,
    rollout_metrics,
    signal_metrics,
    signals_for,
    stop_if_grading_fails,
    unaided,
)
from posttrain.stages._prompts import check_prompts
from posttrain.stages._updates import Update, learn, make_learners
from posttrain.tasks import Tasks
from posttrain.training.settings import Learning
from posttrain.types import Task

if TYPE_CHECKING:
    from posttrain.runs.bench import StageBench
    from posttrain.runs.run import StageRun

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
    """How the policy, and any other role that writes trained tokens, is updated. The policy learns from trained
    demonstrations too."""
    critic: Objective | None = None
    """Loss of the role ``critic``, for advantages that need values."""
    critic_learner: Learning = Learning()
    """How the critic is updated."""
    old_logp: Literal["sampled", "recomputed"] = "sampled"
    """Log-probabilities that ratios are taken against: the sampler's, or computed again by the learner first. Those of
    demonstrations, which nobody sampled, are always the learner's."""
    tasks: Tasks | None = None
    """Problems of this stage; None takes the recipe's."""
    max_grader_errors: Share = 0.5
    """Share of failed judgements in one step at which the run stops."""

    @property
    def roles(self) -> frozenset[str]:
        """Roles that this stage updates, compares with or judges by; rollouts may use others that are loaded."""
        references = {need.removesuffix("_logp") for need in self.needs if need.endswith("_logp")}
        critic = {"critic"} if self.critic else set()
        return frozenset({"policy"} | (references - {"old"}) | critic | self.reward.roles)

    @property
    def needs(self) -> frozenset[str]:
        """Signals to compute before credit is given."""
        wanted = self.advantage.needs.union(self.objective.needs, *(p.needs for p in self.penalties.values()))
        wanted |= {"old_logp"} if self.old_logp == "recomputed" else set()
        return wanted - {"entropy"} | ({"value"} if self.critic else set())

    def check(self, models: Models, tasks: Sequence[Task]) -> None:
        """Every prompt must be there and leave room for an answer."""
        check_prompts(models["policy"], tasks, f"the {self.kind} stage")
        self.rollout.check(tasks)

    def total_steps(self, tasks: Sequence[Task]) -> int:
        """As many as are asked for."""
        return self.steps

    def run(self, models: Models, run: "StageRun") -> Models:
        """Train for the rounds that are left, and return the models with their new weights."""
        updates = self._updates(run)
        learners = make_learners(updates, models, run, self.steps)
        memory = run.memory or self._start()
        for step in range(run.steps_done, self.steps):
            progress, record = step / self.steps, StepRecord()
            with run.phase("sample"):
                memory["curriculum"], tasks = self.curriculum.select(
                    memory["curriculum"], run.tasks, self.prompts, seed=run.seed, step=step
                )
                context = RewardContext(progress=progress, step=step, state=memory["reward"])
                samplers = [run.samplers(models, step, place) for place in range(len(tasks))]
                groups = asyncio.run(collect(tasks, self.rollout.at(progress), self.reward, samplers, context))
            run.attempts = groups
            record.metrics |= rollout_metrics(groups)
            stop_if_grading_fails(groups, self.max_grader_errors)
            memory["curriculum"] = self.curriculum.observe(memory["curriculum"], unaided(groups))
            kept = filter_groups(self.filters, memory["filters"], groups, record)
            if kept:
                with run.phase("signals"):
                    signals = signals_for(
                        kept, self.needs, models, self.learner.micro_batch_tokens, self.rollout.temperature
                    )
                batch = batch_of(kept, signals, self.penalties, progress)
                memory["advantage"], credit = self.advantage(memory["advantage"], batch)
                record.metrics |= signal_metrics(batch) | dict(credit.metrics)
                with run.phase("learn"):
                    learn(updates, learners, batch, credit, record)
            run.finish_step(step + 1, record, memory, learners, models)
        return models

    def _start(self) -> dict[str, Any]:
        """The state of every part with memory before the first step."""
        return {
            "curriculum": self.curriculum.start(),
            "advantage": self.advantage.start(),
            "filters": {name: member.start() for name, member in self.filters.items()},
            "reward": {},
        }

    def preview(self, models: Models, run: "StageBench") -> list[str]:
        """Sample and judge the first step's tasks, and say what came of it."""
        _, tasks = self.curriculum.select(self.curriculum.start(), run.tasks, self.prompts, seed=run.seed, step=0)
        samplers = [run.samplers(models, 0, place) for place in range(len(tasks))]
        return describe(asyncio.run(collect(tasks, self.rollout, self.reward, samplers, RewardContext())))

    def _updates(self, run: "StageRun") -> dict[str, Update]:
        """How each trained role learns: the critic from everybody's tokens, the others from their own."""
        updates = {}
        writers = (name for name, model in run.recipe.models.items() if model.trained and model.head == "language")
        for role in sorted(writers):
            updates[role] = Update(
                learning=self.learner,
                objective=self.objective,
                reducer=self.reducer,
                penalties=self.penalties,
                correction=self.correction,
                role=role,
                temperature=self.rollout.temperature,
            )
        if self.critic is not None:
            updates["critic"] = Update(
                learning=self.critic_learner, objective=self.critic, reducer=self.reducer, penalties={}
            )
        return updates
