"""Outer: weights of rewards, and a discount, that are learned so that learning from their sum raises one of them.

Source: BARFI, Gupta et al. 2023, arXiv:2310.19007, of which only abstracts and summaries could be read. Inner level:
policy gradient updates by the sum of the parts of a score, with weights w and a discount gamma = sigmoid(v),

    D(theta, w, v) = mean over rollouts of sum_t grad logp_t gamma^(T - 1 - t) sum_k w_k (r_k - its group's mean)
                     - decay (theta - reference)

Outer level, after `inner` updates: the mean of the part `primary`, undiscounted, on rollouts of its own, less
`discount_cost` gamma. Its derivative in w and v goes through D = 0 (`stages/implicit`), on the last batch of the inner
level with importance weights of whole rollouts. w and v are moved by Adam and are in checkpoints with its moments; the
policy goes on from where it is. Metrics: ``weight/PART``, ``discount``, ``slope/PART``.

Learning is local: a policy that never leaves what a misleading part rewards has no slope that leads away. Begin with
small weights.

Differs: weights do not depend on the state; the constant part is left out, as the group's mean takes it away. The inner
level is not run to its end. H is taken as symmetric, which it is where gamma is 1. The decay is towards the reference,
of a language model, not towards 0. The original's regularizers could not be checked.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt

from posttrain.component import frozen, nearest
from posttrain.components.reducers import Reducer
from posttrain.components.rewards import Reward, RewardAudit, RewardContext
from posttrain.components.rollouts import Rollout
from posttrain.components.tasks import Tasks
from posttrain.datasets.order import shuffled
from posttrain.engines import wait_for
from posttrain.errors import UserError
from posttrain.models import Model
from posttrain.stages import Models, PreviewContext, Stage, StageContext
from posttrain.stages.fit import check_trained, fit
from posttrain.stages.implicit import Vector, curvature_product, dot, passed_on
from posttrain.stages.needs import Need, needs_of
from posttrain.stages.prompts import check_prompts
from posttrain.stages.rl.collect import collect_groups, split_failed, stop_if_grading_fails
from posttrain.stages.rl.credit import batch_of, columns_of
from posttrain.stages.rl.metrics import describe, metrics_by_role
from posttrain.stages.rl.reward_audit import audited
from posttrain.training.settings import Learning
from posttrain.types import Credit, FloatArray, Group, PerToken, Task, Tokens, Trajectory

if TYPE_CHECKING:
    from posttrain.training.learner import Learner

BETAS = (0.9, 0.999)
EPSILON = 1e-8
SIZE = 1e-3
"""Parameters are moved by this share of their norm for a product with H."""
LARGEST = 20.0
"""Bound of an importance weight's logarithm."""


@frozen
class Outer(Stage):
    """Policy gradient on parts of a score whose weights are learned."""

    rollout: Rollout
    """How the policy samples rollouts."""
    reward: Reward
    """A reward with parts, such as ``sum``; its own weights do not matter."""
    reducer: Reducer
    primary: str = "correct"
    """The part whose mean the outer level raises."""
    weights: Annotated[Mapping[str, float], Field(min_length=1)] = Field(default_factory=lambda: {"correct": 1.0})
    """The parts that are learned from, with the weights at the start."""
    discount: Annotated[float, Field(gt=0.0, lt=1.0)] = 0.999
    """gamma at the start, per token before the end."""
    discount_cost: NonNegativeFloat = 0.0
    """What the outer level takes off for a discount of 1."""
    learned: bool = True
    """Whether weights and the discount are learned; fixed ones are the control."""
    rate: NonNegativeFloat = 0.1
    """Step size of the weights."""
    discount_rate: NonNegativeFloat = 0.1
    """Step size of v."""
    terms: Annotated[int, Field(ge=1, le=1000)] = 3
    """Terms of the sum in place of the inverse."""
    step: PositiveFloat = 0.1
    """Step size in that sum."""
    decay: NonNegativeFloat = 0.0
    """Pull of the inner updates back to the weights of `reference`, per unit of learning rate."""
    reference: str = "reference"
    """Role with those weights; used with a decay."""
    steps: PositiveInt = 40
    """Outer steps."""
    inner: Annotated[int, Field(ge=1, le=10_000)] = 2
    """Inner updates before each."""
    first: Annotated[int, Field(ge=1, le=10_000)] = 4
    """Inner updates before the first."""
    prompts: PositiveInt = 16
    """Tasks of an inner update."""
    outer_prompts: Annotated[int, Field(ge=1, le=100_000)] = 16
    """Tasks of an outer step, for the slope of the primary part."""
    learner: Learning = Learning()
    """How the policy is updated."""
    max_grader_errors: Annotated[float, Field(gt=0.0, le=1.0)] = 0.5
    """Share of a batch's rollouts that could not be scored, at which the run stops."""
    audit: RewardAudit | None = RewardAudit()
    """Of a reward that uses a model: texts without content must not outrank right answers. None has no audit."""
    tasks: Tasks | None = None
    """Tasks of this stage; None takes the recipe's."""

    @property
    def roles(self) -> frozenset[str]:
        """The policy, the reference of a decay, and the roles that sample and score."""
        held = frozenset({self.reference}) if self.decay else frozenset()
        return frozenset({"policy"}) | held | self.rollout.roles | self.reward.roles

    def needed(self, models: Mapping[str, Model]) -> Sequence[Need]:
        """The needs of the rollout and the reward."""
        parts = (("rollout", self.rollout), ("reward", self.reward))
        return [need for path, part in parts for need in needs_of(path, part, role="policy")]

    def check(self, models: Models, tasks: Sequence[Task]) -> None:
        """The reward must have the parts, and prompts leave room for an answer."""
        check_prompts(models["policy"], tasks, f"the {self.kind} stage")
        self.rollout.check(tasks)
        self.reward.check(tasks)
        self.check_parts()
        if self.decay and any(p.requires_grad and p.element_size() < 4 for p in models["policy"].parameters()):
            raise UserError("decay moves weights by less than 16 bits resolve; set models.policy.dtype=float32")

    def check_parts(self) -> None:
        """Raise `UserError` for a part that the reward does not have."""
        for name in (self.primary, *self.weights):
            if name not in self.reward.wrapped:
                raise UserError(
                    f"the {self.kind} stage learns from the part '{name}', and the reward {self.reward.kind} has the "
                    f"parts {', '.join(self.reward.wrapped) or 'none'}; {nearest(name, self.reward.wrapped)}"
                )

    @property
    def audited_reward(self) -> Reward:
        """The reward, with its audit where it uses a model."""
        return audited(self.reward, self.audit)

    def notes(self, tasks: Sequence[Task]) -> Sequence[str]:
        """Those of the reward and of its audit."""
        return self.audited_reward.notes(tasks)

    def total_steps(self, tasks: Sequence[Task]) -> int:
        """The setting `steps`."""
        return self.steps

    def start(self) -> dict[str, Any]:
        """The weights, v, and the moments of both, before the first step."""
        zeros = dict.fromkeys(("v", *self.weights), 0.0)
        return {
            "weights": dict(self.weights),
            "v": float(np.log(self.discount / (1.0 - self.discount))),
            "first": dict(zeros),
            "second": dict(zeros),
        }

    def run(self, models: Models, context: StageContext) -> Models:
        """Alternate inner updates and outer steps; returns the models with the new weights."""
        from posttrain.training.learner import Learner

        check_trained(models["policy"], "policy", f"the {self.kind} stage")
        updates = self.steps * self.inner + max(self.first - self.inner, 0)
        learner = Learner(models["policy"], self.learner, seed=context.seed, num_steps=updates)
        memory: dict[str, Any] = dict(context.memory or self.start() | {"reward": self.audited_reward.initial})
        for step in fit(context, models, {"policy": learner}, steps=self.steps, memory=memory):
            metrics, held = step.record.metrics, _Level(self, learner, models, step.progress)
            before, count = context.sampled_tokens(models), 0
            inner: list[Group] = []
            for turn in range(max(self.first, self.inner) if step.index == 0 else self.inner):
                with context.phase("sample"):
                    sampled = self._groups(models, context, (step.index, "inner", turn), self.prompts, memory)
                context.groups = inner = self._weighed(sampled, memory)
                stop_if_grading_fails(inner, self.max_grader_errors)
                kept, dropped = split_failed(inner)
                for item in dropped:
                    step.record.drop(item.group, item.reason, index=count)
                with context.phase("learn"):
                    held.update(kept, memory, step.record, count)
                count += len(inner)
            metrics |= metrics_by_role(inner)
            metrics |= {f"weight/{name}": value for name, value in memory["weights"].items()}
            metrics["discount"] = sigmoid(memory["v"])
            if self.learned:
                with context.phase("sample"):
                    key = (step.index, "outer")
                    context.groups = outer = self._groups(models, context, key, self.outer_prompts, memory)
                stop_if_grading_fails(outer, self.max_grader_errors)
                step.record.drop_rest(outer, "the primary part is measured on them")
                with context.phase("learn"):
                    slopes = held.slopes(split_failed(inner)[0], split_failed(outer)[0], memory)
                metrics |= {f"slope/{name}": value for name, value in slopes.items()}
                self.move(memory, slopes, step.index)
            metrics["sampled_tokens"] = float(context.sampled_tokens(models) - before)
        return models

    def move(self, memory: dict[str, Any], slopes: Mapping[str, float], step: int) -> None:
        """One step of Adam, upwards. Changes `memory` in place."""
        gamma = sigmoid(memory["v"])
        own = {**slopes, "v": slopes["v"] - self.discount_cost * gamma * (1.0 - gamma)}
        for name, slope in own.items():
            first = memory["first"][name] = BETAS[0] * memory["first"][name] + (1 - BETAS[0]) * slope
            second = memory["second"][name] = BETAS[1] * memory["second"][name] + (1 - BETAS[1]) * slope**2
            size = (second / (1 - BETAS[1] ** (step + 1))) ** 0.5 + EPSILON
            change = first / (1 - BETAS[0] ** (step + 1)) / size
            if name == "v":
                memory["v"] += self.discount_rate * change
            else:
                memory["weights"][name] += self.rate * change

    def preview(self, models: Models, context: PreviewContext) -> list[str]:
        """Sample and score the first batch, and describe the rollouts."""
        sampled = self._groups(models, context, (0, "inner", 0), self.prompts)
        return describe(self._weighed(sampled, self.start()))

    def _groups(
        self,
        models: Models,
        context: PreviewContext,
        key: tuple[int | str, ...],
        count: int,
        memory: Mapping[str, Any] | None = None,
    ) -> list[Group]:
        """Scored groups of tasks drawn for the key; audited, and with the reward's state, where there is a memory."""
        turn = key[0] if isinstance(key[0], int) else 0
        place = turn * (self.inner + self.first + 1) + (key[2] if len(key) > 2 and isinstance(key[2], int) else -1) + 1
        tasks = [context.tasks[i] for i in shuffled(len(context.tasks), count, place, context.seed)]
        samplers = [context.samplers(models, *key, i) for i in range(len(tasks))]
        reward, scoring = self.reward, RewardContext(step=turn)
        if memory is not None:
            reward = self.audited_reward
            scoring = replace(scoring, seed=context.seed, learning=True, state=memory["reward"])
        return wait_for(collect_groups(tasks, self.rollout, reward, samplers, scoring))

    def _weighed(self, groups: Sequence[Group], memory: Mapping[str, Any]) -> list[Group]:
        """The groups with the learned sum as the value of their scores."""
        weights = memory["weights"]
        return [replace(group, trajectories=tuple(weighed(t, weights) for t in group)) for group in groups]


class _Level:
    """The inner level of a step: updates, and derivatives at the weights that they lead to."""

    def __init__(self, stage: Outer, learner: "Learner", models: Models, progress: float) -> None:
        self.stage, self.learner, self.models, self.progress = stage, learner, models, progress

    def update(self, groups: Sequence[Group], memory: Mapping[str, Any], record: Any, count: int) -> None:
        """One update by the learned sum, then the decay."""
        import torch

        if not groups:
            return
        batch = batch_of(groups, {}, {}, self.progress)
        values_N = np.array([t.score.value if t.score else 0.0 for t in batch.trajectories])
        credit = Credit(advantages=tuple(advantages(groups, values_N, sigmoid(memory["v"]))))
        learned = self.learner.step(self._examples(groups, credit), self._loss(), progress=self.progress)
        record.learn("policy", batch, range(count, count + len(groups)), columns_of(batch, credit), learned)
        rate = learned.metrics["learning_rate"]
        with torch.no_grad():
            for p, away in zip(self.learner.parameters.values(), self._away(), strict=True):
                p.sub_(rate * self.stage.decay * away)
        self.learner.masters.publish()

    def slopes(self, inner: Sequence[Group], outer: Sequence[Group], memory: Mapping[str, Any]) -> dict[str, float]:
        """The derivative of the mean of the primary part in each weight and in v; zeros without rollouts."""
        weights, gamma = memory["weights"], sigmoid(memory["v"])
        if not inner or not outer:
            return dict.fromkeys((*weights, "v"), 0.0)
        parts = {name: parts_of(inner, name) for name in weights}
        total_N = sum(weights[name] * value_N for name, value_N in parts.items())
        aim = self._field(outer, advantages(outer, parts_of(outer, self.stage.primary), 1.0))
        own = advantages(inner, np.asarray(total_N), gamma)

        def inner_field() -> Vector:
            return [x - self.stage.decay * y for x, y in zip(self._field(inner, own), self._away(), strict=True)]

        def product(direction: Vector) -> Vector:
            return curvature_product(inner_field, list(self.learner.parameters.values()), direction, SIZE)

        through = passed_on(aim, product, step=self.stage.step, terms=self.stage.terms)
        found = {
            name: dot(through, self._field(inner, advantages(inner, value_N, gamma))) for name, value_N in parts.items()
        }
        return {**found, "v": dot(through, self._field(inner, discounted(inner, np.asarray(total_N), gamma)))}

    def _field(self, groups: Sequence[Group], advantage_N: Sequence[FloatArray]) -> Vector:
        """The policy gradient of rollouts with these advantages, at the present weights."""
        examples = self._examples(groups, Credit(advantages=tuple(advantage_N)))
        return [-x for x in self.learner.gradient(examples, self._loss(), progress=self.progress)]

    def _examples(self, groups: Sequence[Group], credit: Credit) -> Any:
        from posttrain.training.packing import example_of

        batch = batch_of(groups, {}, {}, self.progress)
        own = zip(batch.trajectories, columns_of(batch, credit), batch.group_N, strict=True)
        return [example_of(t, columns, group=int(group), role="policy") for t, columns, group in own]

    def _loss(self) -> Any:
        from posttrain.training.learner import Loss

        return Loss(per_token=weighted_gradient, reducer=self.stage.reducer, temperature=self.stage.rollout.temperature)

    def _away(self) -> Vector:
        """How far each parameter is from the reference; zeros without a decay."""
        import torch

        if not self.stage.decay:
            return [torch.zeros_like(p) for p in self.learner.parameters.values()]
        there = dict(self.models[self.stage.reference].named_parameters())
        return [p.detach() - there[name].detach() for name, p in self.learner.parameters.items()]


def weighted_gradient(tokens: Tokens) -> PerToken:
    """[T] minus advantage times log-probability, times the importance weight of the rollout, which has no gradient."""
    ratio_N = tokens.sequence_sum(tokens.logp_T.detach() - tokens.behavior_logp_T).clamp(max=LARGEST).exp()
    return PerToken(loss_T=-ratio_N[tokens.sequence_T] * tokens.advantage_T * tokens.logp_T)


def advantages(groups: Sequence[Group], value_N: FloatArray | Any, gamma: float) -> list[FloatArray]:
    """For each rollout [T] gamma^(T - 1 - t) times its value less the group's mean."""
    return _placed(groups, value_N, lambda left_T: gamma**left_T)


def discounted(groups: Sequence[Group], value_N: FloatArray | Any, gamma: float) -> list[FloatArray]:
    """The derivative of `advantages` in v, with gamma = sigmoid(v)."""
    return _placed(groups, value_N, lambda left_T: left_T * gamma**left_T * (1.0 - gamma))


def _placed(groups: Sequence[Group], value_N: Any, factor: Callable[[Any], Any]) -> list[FloatArray]:
    found, begin = [], 0
    for group in groups:
        own = np.asarray(value_N[begin : begin + len(group)], np.float64)
        begin += len(group)
        for trajectory, value in zip(group, own - own.mean(), strict=True):
            left_T = np.arange(trajectory.num_trained - 1, -1, -1, dtype=np.float64)
            found.append((value * factor(left_T)).astype(np.float32))
    return found


def parts_of(groups: Sequence[Group], name: str) -> Any:
    """[N] value of a part of each score; 0 where it does not apply."""
    return np.array([_part(t, name) for group in groups for t in group], np.float64)


def _part(trajectory: Trajectory, name: str) -> float:
    part = trajectory.score.parts.get(name) if trajectory.score is not None else None
    return part.value if part is not None and part.applies else 0.0


def weighed(trajectory: Trajectory, weights: Mapping[str, float]) -> Trajectory:
    """The trajectory with the weighted sum of its parts as its value; unchanged where it has no score."""
    score = trajectory.score
    if score is None or score.status == "error":
        return trajectory
    value = sum(weight * _part(trajectory, name) for name, weight in weights.items())
    return replace(trajectory, score=replace(score, value=value, spans=()))


def sigmoid(v: float) -> float:
    """1 / (1 + e^-v)."""
    return float(1.0 / (1.0 + np.exp(-v)))
