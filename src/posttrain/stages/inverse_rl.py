r"""Inverse RL: reward models that put demonstrations above what the policy writes now, one for each domain.

Source: maximum-likelihood inverse RL as in DR-IRL, arXiv:2503.18991, of which secondary text was read:

    max over theta, min over pi of    E[(r(x, demonstration) - r(x, sample)) / beta + KL(pi || reference)]

This stage is the step of the rewards, which ascends the mean of (grad r(demonstration) - grad r(sample)) / beta; that
of the policy is a stage of RL with a KL from the reference. The two alternate as stages of a recipe. Every step draws
the same number of tasks of each domain, so that a rare domain learns as much, and samples the policy anew. A task
trains only the reward model of its own domain; tasks of other domains are left out.

Differs: the authors alternate in every iteration. The difference is linear in the scores and has no upper limit; how
far it grows is up to the number of steps and the learning rate.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated

import numpy as np
from pydantic import Field, PositiveFloat, PositiveInt

from posttrain.component import frozen, nearest
from posttrain.components.preferences import pairs_in, spread
from posttrain.components.reducers import Reducer
from posttrain.components.rollouts import Rollout
from posttrain.components.tasks import Tasks
from posttrain.datasets.order import shuffled
from posttrain.engines import wait_for
from posttrain.errors import UserError
from posttrain.models import Model
from posttrain.signals import SCORE
from posttrain.stages import Models, PreviewContext, Stage, StageContext
from posttrain.stages.fit import check_trained, fit
from posttrain.stages.needs import Need, needs_of
from posttrain.stages.pairs import examples_of_pair
from posttrain.stages.sft import demonstration
from posttrain.training.settings import Learning
from posttrain.types import PerToken, Task, Tokens, Trajectory

if TYPE_CHECKING:
    from posttrain.training.learner import Learner, Loss

Pair = tuple[Trajectory, Trajectory]
"""A demonstration, and a sample of the policy for the same task."""


@frozen
class InverseRL(Stage):
    """Training of one reward model per domain on demonstrations against samples of the policy."""

    by_domain: Annotated[Mapping[str, str], Field(min_length=1)]
    """Role of the reward model of each domain; each needs ``head: reward`` and ``trained: true``. Domains that share a
    role share a model."""
    rollout: Rollout
    """How the policy is sampled; the first rollout of each task counts."""
    reducer: Reducer
    steps: PositiveInt = 20
    """Updates of every reward model."""
    batch: Annotated[int, Field(ge=1, le=100_000)] = 8
    """Tasks of each domain in a step."""
    beta: PositiveFloat = 1.0
    """Divides the difference of rewards, in units of reward."""
    learner: Learning = Learning()
    """How the reward models are updated."""
    tasks: Tasks | None = None
    """Tasks of this stage; None takes the recipe's."""

    @property
    def roles(self) -> frozenset[str]:
        """The reward models, and the roles that sample."""
        return frozenset({"policy", *self.by_domain.values()}) | self.rollout.roles

    def needed(self, models: Mapping[str, Model]) -> Sequence[Need]:
        """The scores of every reward model, and the needs of the rollout."""
        own = [Need(signal=SCORE, role=role, path="by_domain") for role in sorted(set(self.by_domain.values()))]
        return [*own, *needs_of("rollout", self.rollout, role="policy")]

    def check(self, models: Models, tasks: Sequence[Task]) -> None:
        """Every domain must have tasks with a demonstration that fits into the context."""
        self.rollout.check(tasks)
        for own in self._by_domain(tasks).values():
            for task in own:
                demonstration(models["policy"], task, task.demonstrations[0])

    def total_steps(self, tasks: Sequence[Task]) -> int:
        """The setting `steps`."""
        return self.steps

    def run(self, models: Models, context: StageContext) -> Models:
        """Sample and learn, and return the models with the reward models' new weights."""
        from posttrain.training.learner import Learner, Loss

        learners: dict[str, Learner] = {}
        for role in sorted(set(self.by_domain.values())):
            check_trained(models[role], role, f"the {self.kind} stage")
            learners[role] = Learner(models[role], self.learner, seed=context.seed, num_steps=self.steps)
        loss = Loss(per_token=self._difference, reducer=self.reducer, needs=frozenset({SCORE}), whole_groups=True)
        for step in fit(context, models, learners, steps=self.steps, memory=dict(context.memory or {})):
            with context.phase("sample"):
                before = context.sampled_tokens(models)
                pairs = self._pairs(models, context, step.index)
            metrics = step.record.metrics
            metrics["sampled_tokens"] = float(context.sampled_tokens(models) - before)
            with context.phase("learn"):
                losses = {}
                for role, learner in learners.items():
                    own = [pair for pair in pairs if self.by_domain[pair[0].task.domain] == role]
                    losses[role] = self._learn(own, learner, loss, step.progress)
            for role, learned in losses.items():
                metrics |= {f"{role}/{name}": value for name, value in learned.items()}
            for name in sorted({name for learned in losses.values() for name in learned}):
                metrics[name] = float(np.mean([learned[name] for learned in losses.values() if name in learned]))
            metrics["trained_tokens"] = float(sum(t.num_trained for pair in pairs for t in pair))
        return models

    def preview(self, models: Models, context: PreviewContext) -> list[str]:
        """The number of tasks by domain, and the first pair."""
        pairs = self._pairs(models, context, 0)
        counts = {domain: len(own) for domain, own in self._by_domain(context.tasks).items()}
        return [
            f"{', '.join(f'{count} of {domain}' for domain, count in counts.items())}; {self.batch} of each in a step",
            f"first demonstration: {pairs[0][0].completion!r}",
            f"first sample: {pairs[0][1].completion!r}",
        ]

    def _learn(self, pairs: Sequence[Pair], learner: "Learner", loss: "Loss", progress: float) -> Mapping[str, float]:
        """Update a reward model with its pairs, and return its metrics."""
        examples = [example for place, pair in enumerate(pairs) for example in examples_of_pair(pair, place)]
        return learner.step(examples, loss, progress=progress).metrics

    def _pairs(self, models: Models, context: PreviewContext, step: int) -> list[Pair]:
        """Each domain's tasks of a step, with a demonstration and a fresh sample of each."""
        tasks = [
            own[i]
            for own in self._by_domain(context.tasks).values()
            for i in shuffled(len(own), self.batch, step, context.seed)
        ]

        async def one(place: int, task: Task) -> Trajectory:
            groups = await self.rollout.collect(task, context.samplers(models, step, place))
            return groups[0].trajectories[0]

        async def sampled() -> list[Trajectory]:
            return list(await asyncio.gather(*(one(place, task) for place, task in enumerate(tasks))))

        policy = models["policy"]
        shown = [demonstration(policy, task, task.demonstrations[0], step, i) for i, task in enumerate(tasks)]
        return list(zip(shown, wait_for(sampled()), strict=True))

    def _by_domain(self, tasks: Sequence[Task]) -> dict[str, list[Task]]:
        """The tasks with a demonstration of each domain. Raises `UserError` for a domain without any."""
        found: dict[str, list[Task]] = {domain: [] for domain in self.by_domain}
        for task in tasks:
            if task.domain in found and task.demonstrations:
                found[task.domain].append(task)
        for domain, own in found.items():
            if not own:
                known = sorted({task.domain for task in tasks if task.demonstrations})
                raise UserError(
                    f"by_domain has the domain '{domain}', and no task of it has a demonstration; "
                    f"{nearest(domain, known)}, or leave the domain out"
                )
        return found

    def _difference(self, tokens: Tokens) -> PerToken:
        """[T] for each token minus the difference of its pair's scores, over beta."""
        pair_P2 = pairs_in(tokens)
        score_P2 = tokens.last(tokens[SCORE])[pair_P2]
        margin_P = score_P2[:, 0] - score_P2[:, 1]
        seen = {"pair_accuracy": (margin_P > 0).to(margin_P.dtype), "pair_margin": margin_P}
        metrics = {name: values.detach() for name, values in seen.items()}
        return PerToken(loss_T=spread(-margin_P / self.beta, pair_P2, tokens), metrics=metrics)
