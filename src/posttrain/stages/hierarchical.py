"""Hierarchical: an off-policy critic of whole utterances, and a policy that learns from its values.

Source: ArCHer, Zhou et al. 2024, arXiv:2402.19446, and its released code (YifeiZhou02/ArCHer at 7c771a7). With s the
ids before a turn, u the turn, and k = 1, 2 the heads of a critic Q_k(s, u), V_k(s) whose slow copy has a bar:

    Q_k(s, u)  ->  r + gamma Vbar_k(s')            of stored turns; r alone where the episode ended. No minimum of heads
    V_k(s)     ->  Qbar_k(s, u')                   u' drawn from the policy as it is now, at every update
    A(s, u')    =  min_k Q_k(s, u') - min_k V_k(s)
    loss of the policy  =  - mean over s of A sum over tokens of log p(u' | s)

States of both are drawn from turns of all earlier rollouts (`stages/stored`); what the policy learns from is sampled
anew. The loss of the critic is the sum of the four squared errors, each a mean over the turns. After every update of
the critic its copy moves by the share `tau`. In each step new rollouts are stored, then the critic is updated
`critic_updates` times, and after `warmup_steps` the policy `policy_updates` times.

The critic is one model with a reward head of four outputs: both Q at the end of a turn, both V before it. With
`baseline_role` a model with values b_t before each token is updated beside the policy, by (A - b_t)^2, and the tokens
of a turn have the advantages A - b_t, with b as it was before the update.

Differs: gradients of a batch are averaged, where the release adds up those of 32 parts. The baseline of tokens is a
model of its own, where the release puts its head on the policy. A rollout that is cut after the last turn ends there,
as in the release.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
from pydantic import Field, PositiveInt

from posttrain.component import frozen
from posttrain.components.objectives import Objective
from posttrain.components.reducers import Reducer
from posttrain.components.rewards import Reward, RewardAudit, RewardContext
from posttrain.components.rollouts import Rollout
from posttrain.components.tasks import Tasks
from posttrain.datasets.order import shuffled
from posttrain.engines import Sampler, Sampling, wait_for
from posttrain.errors import UserError
from posttrain.models import Model
from posttrain.signals import ADVANTAGE, BEHAVIOR_LOGP, LOGP, OLD_LOGP, SCORES, VALUE, trained_in
from posttrain.stages import Models, PreviewContext, Stage, StageContext
from posttrain.stages.fit import Step, check_trained, fit
from posttrain.stages.needs import Need, needs_of
from posttrain.stages.prompts import check_prompts
from posttrain.stages.record import Row, StepRecord
from posttrain.stages.rl.collect import collect_groups, stop_if_grading_fails
from posttrain.stages.rl.metrics import describe, metrics_by_role
from posttrain.stages.rl.reward_audit import audited
from posttrain.stages.stored import StoredTurn, StoredTurns
from posttrain.training.settings import Learning
from posttrain.types import Completion, FloatArray, Group, IntArray, PerToken, Segment, Task, Tokens, Trajectory

if TYPE_CHECKING:
    from posttrain.policies import Policy
    from posttrain.training.learner import Learned, Learner
    from posttrain.training.packing import Example

HEADS = 2
OUTPUTS = 2 * HEADS
"""Both Q, then both V."""
_STATE, _ACTION = 0, 1
"""`Tokens.turn_T` of a place that is read: before the turn, or at its end."""


@frozen
class Hierarchical(Stage):
    """Rounds of rollouts that are stored, updates of a critic of utterances, and updates of the policy."""

    steps: PositiveInt
    """Rounds of sampling and learning."""
    prompts: PositiveInt
    """Tasks that are sampled in each round."""
    rollout: Rollout
    """How rollouts are sampled; each of its trained segments is a turn."""
    reward: Reward
    objective: Objective
    """Loss of the policy's tokens; each has the advantage of its turn."""
    reducer: Reducer
    """Of the policy's loss and the critic's: a mean over turns of the sum over their tokens in the paper."""
    gamma: Annotated[float, Field(gt=0.0, le=1.0)] = 0.95
    """Discount by turn."""
    tau: Annotated[float, Field(gt=0.0, le=1.0)] = 0.1
    """Share of the critic in its copy after each update; 1 copies."""
    batch: Annotated[int, Field(ge=1, le=100_000)] = 256
    """Turns of each update."""
    critic_updates: Annotated[int, Field(ge=1, le=10_000)] = 50
    """Updates of the critic in each step."""
    policy_updates: Annotated[int, Field(ge=1, le=10_000)] = 3
    """Updates of the policy in each step."""
    warmup_steps: Annotated[int, Field(ge=0, le=1_000_000)] = 20
    """Steps at the start in which only the critic learns."""
    capacity: Annotated[int, Field(ge=1, le=10_000_000)] = 100_000
    """Turns that are stored, at most."""
    critic_role: str = "critic"
    """A trained model with ``head: reward`` and ``outputs: 4``."""
    target_role: str = "target_critic"
    """Its slow copy."""
    baseline_role: str | None = None
    """A trained model with ``head: value``, the baseline of single tokens; None has none."""
    learner: Learning = Learning()
    """How the policy is updated."""
    critic_learner: Learning = Learning()
    """How the critic is updated."""
    max_grader_errors: Annotated[float, Field(gt=0.0, le=1.0)] = 0.5
    """Share of a step's rollouts that could not be scored, at which the run stops."""
    audit: RewardAudit | None = RewardAudit()
    """Of a reward that uses a model: texts without content must not outrank right answers. None has no audit."""
    tasks: Tasks | None = None
    """Tasks of this stage; None takes the recipe's."""

    @property
    def roles(self) -> frozenset[str]:
        """The policy, the critic, its copy, and the roles that sample and score."""
        own = frozenset({"policy", self.critic_role, self.target_role, self.baseline_role or "policy"})
        return own | self.rollout.roles | self.reward.roles

    def needed(self, models: Mapping[str, Model]) -> Sequence[Need]:
        """The outputs of the critic, and the needs of the parts. Raises `UserError` for another number of outputs."""
        for role in (self.critic_role, self.target_role):
            if role in models and models[role].outputs != OUTPUTS:
                raise UserError(
                    f"the {self.kind} stage reads {OUTPUTS} outputs of the role '{role}', two values of a turn and two "
                    f"of the state before it; set models.{role}.outputs={OUTPUTS}"
                )
        parts = (("rollout", self.rollout), ("reward", self.reward), ("objective", self.objective))
        baseline = self.baseline_role
        return [
            *([Need(signal=VALUE, role=baseline, path="baseline_role", setting="baseline_role")] if baseline else []),
            Need(signal=SCORES, role=self.critic_role, path="critic_role", setting="critic_role"),
            Need(signal=SCORES, role=self.target_role, path="target_role", setting="target_role"),
            *(need for path, part in parts for need in needs_of(path, part, role="policy")),
        ]

    def check(self, models: Models, tasks: Sequence[Task]) -> None:
        """Every task must have a prompt that leaves room for an answer."""
        check_prompts(models["policy"], tasks, f"the {self.kind} stage")
        self.rollout.check(tasks)
        self.reward.check(tasks)

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

    def run(self, models: Models, context: StageContext) -> Models:
        """Sample, store and learn; returns the models with their new weights."""
        learners = self._learners(models, context)
        memory: dict[str, Any] = context.memory or {"stored": [], "reward": self.audited_reward.initial}
        stored = StoredTurns(capacity=self.capacity, packed=memory["stored"])
        tasks = {task.key: task for task in context.tasks}
        for step in fit(context, models, learners, steps=self.steps, memory=memory):
            models["policy"].at(step.progress)
            before = context.sampled_tokens(models)
            with context.phase("sample"):
                scoring = RewardContext(
                    progress=step.progress, step=step.index, seed=context.seed, learning=True, state=memory["reward"]
                )
                groups = self._collect(models, context, self.audited_reward, scoring)
                context.groups = groups
                step.record.metrics |= metrics_by_role(groups)
                stop_if_grading_fails(groups, self.max_grader_errors)
                for index, group in enumerate(groups):
                    step.record.drop(group, "stored: later updates begin at its turns", index)
                stored.add(t for group in groups for t in group)
            if len(stored):
                self._learn(models, context, learners, stored, tasks, step)
            step.record.metrics["stored_turns"] = float(len(stored))
            step.record.metrics["sampled_tokens"] = float(context.sampled_tokens(models) - before)
        return models

    def preview(self, models: Models, context: PreviewContext) -> list[str]:
        """Sample and score the tasks of the first step, and describe them."""
        return describe(self._collect(models, context, self.reward, RewardContext()))

    def _learners(self, models: Models, context: StageContext) -> "dict[str, Learner]":
        """Those of the policy and of the critic."""
        from posttrain.training.learner import Learner

        learning = {"policy": (self.learner, self.policy_updates, max(self.steps - self.warmup_steps, 1))}
        learning[self.critic_role] = (self.critic_learner, self.critic_updates, self.steps)
        if self.baseline_role is not None:
            learning[self.baseline_role] = (self.critic_learner, *learning["policy"][1:])
        learners = {}
        for role, (settings, updates, steps) in learning.items():
            check_trained(models[role], role, f"the {self.kind} stage")
            learners[role] = Learner(models[role], settings, seed=context.seed, num_steps=updates * steps)
        return learners

    def _collect(self, models: Models, context: PreviewContext, reward: Reward, scoring: RewardContext) -> list[Group]:
        """The scored rollouts of a step."""
        tasks = [context.tasks[i] for i in shuffled(len(context.tasks), self.prompts, scoring.step, context.seed)]
        samplers = [context.samplers(models, scoring.step, place) for place in range(len(tasks))]
        return wait_for(collect_groups(tasks, self.rollout, reward, samplers, scoring))

    def _learn(
        self,
        models: Models,
        context: StageContext,
        learners: "Mapping[str, Learner]",
        stored: StoredTurns,
        tasks: Mapping[str, Task],
        step: Step,
    ) -> None:
        """All updates of a step."""
        sampled: list[Mapping[str, float]] = []
        batches = [
            stored.draw(self.batch, np.random.default_rng([context.seed, step.index, _STATE, update]))
            for update in range(self.critic_updates)
        ]
        with context.phase("sample"):  # the policy is the same for all of them
            sampler = context.samplers(models, step.index, "critic")["policy"]
            written = self._fresh([turn for turns in batches for turn in turns], sampler)
        for update, turns in enumerate(batches):
            fresh = written[update * self.batch : (update + 1) * self.batch]
            with context.phase("learn"):
                target_NO = self._targets(turns, fresh, models[self.target_role], learners[self.critic_role])
                learned = self._fit_critic(turns, target_NO, learners[self.critic_role], step)
                self._follow(models)
            step.record.computed_tokens += learned.computed_tokens
            sampled.append(learned.metrics)
        metrics = step.record.metrics
        metrics |= {f"critic/{n}": float(np.mean([own[n] for own in sampled])) for n in sampled[0]} if sampled else {}
        if step.index < self.warmup_steps:
            return
        for update in range(self.policy_updates):
            turns = stored.draw(self.batch, np.random.default_rng([context.seed, step.index, _ACTION, update]))
            with context.phase("sample"):
                fresh = self._fresh(turns, context.samplers(models, step.index, "policy", update)["policy"])
            with context.phase("learn"):
                advantage_N = self._advantages(turns, fresh, models[self.critic_role], learners[self.critic_role])
                examples = self._examples(turns, fresh, advantage_N, models, learners, step)
                learned = self._fit_policy(examples, learners["policy"], step)
            metrics |= learned.metrics
            metrics["trained_tokens"] = metrics.get("trained_tokens", 0.0) + float(sum(map(_length, fresh)))
            step.record.computed_tokens += learned.computed_tokens
            _record(step.record, turns, fresh, examples, learned, tasks)

    def _fresh(self, turns: Sequence[StoredTurn], sampler: Sampler) -> list[Completion]:
        """What the policy writes now in the place of each turn; equal contexts are one request."""
        sampling: Sampling = getattr(self.rollout, "sampling", Sampling())
        environment = getattr(self.rollout, "environment", None)
        stop = (*sampling.stop, *(s for s in getattr(environment, "stop", ()) if s not in sampling.stop))
        by_context: dict[bytes, list[int]] = {}
        for place, turn in enumerate(turns):
            by_context.setdefault(turn.context.tobytes(), []).append(place)

        async def one(number: int, places: Sequence[int]) -> list[Completion]:
            own = sampler.bind(number)
            return await own.sample(turns[places[0]].context, len(places), replace(sampling, stop=stop))

        async def run_all() -> list[list[Completion]]:
            return list(await asyncio.gather(*(one(i, places) for i, places in enumerate(by_context.values()))))

        found: dict[int, Completion] = {}
        for places, written in zip(by_context.values(), wait_for(run_all()), strict=True):
            found |= dict(zip(places, written, strict=True))
        return [found[place] for place in range(len(turns))]

    def _targets(
        self, turns: Sequence[StoredTurn], fresh: Sequence[Completion], target: "Policy", learner: "Learner"
    ) -> FloatArray:
        """[N, 4] targets of both Q and of both V, by the copy."""
        value_N = read_outputs(target, [t.following if t.following is not None else t.context for t in turns], learner)
        action_N = read_outputs(
            target, [np.concatenate([t.context, u.token_ids]) for t, u in zip(turns, fresh, strict=True)], learner
        )
        reward_N = np.array([t.reward for t in turns], np.float32)
        goes_N = np.array([t.following is not None for t in turns], np.float32)
        q_N2 = reward_N[:, None] + self.gamma * goes_N[:, None] * value_N[:, HEADS:]
        return np.concatenate([q_N2, action_N[:, :HEADS]], 1).astype(np.float32)

    def _fit_critic(
        self, turns: Sequence[StoredTurn], target_NO: FloatArray, learner: "Learner", step: Step
    ) -> "Learned":
        """One update of the critic."""
        from posttrain.training.learner import Loss
        from posttrain.training.packing import Example

        examples = [
            Example(
                token_ids=np.concatenate([turn.context, turn.action]),
                positions=np.array([len(turn.context) - 1, len(turn.context) + len(turn.action) - 1], np.int64),
                columns={},
                turn_T=np.array([_STATE, _ACTION], np.int64),
                group=i,
            )
            for i, turn in enumerate(turns)
        ]
        loss = Loss(
            per_token=lambda tokens: squared_errors(tokens, target_NO),
            reducer=self.reducer,
            needs=frozenset({SCORES}),
        )
        return learner.step(examples, loss, progress=step.progress)

    def _follow(self, models: Models) -> None:
        """Move the copy towards the critic."""
        import torch

        critic, target = dict(models[self.critic_role].named_parameters()), models[self.target_role]
        with torch.no_grad():
            for name, own in target.named_parameters():
                own.lerp_(critic[name].to(own.dtype), self.tau)
        target.version += 1

    def _advantages(
        self, turns: Sequence[StoredTurn], fresh: Sequence[Completion], critic: "Policy", learner: "Learner"
    ) -> FloatArray:
        """[N] the smaller Q of the fresh turn minus the smaller V of the state."""
        ids = [np.concatenate([t.context, u.token_ids]) for t, u in zip(turns, fresh, strict=True)]
        q_N2 = read_outputs(critic, ids, learner)[:, :HEADS]
        v_N2 = read_outputs(critic, [t.context for t in turns], learner)[:, HEADS:]
        return np.asarray(q_N2.min(1) - v_N2.min(1), np.float32)

    def _examples(
        self,
        turns: Sequence[StoredTurn],
        fresh: Sequence[Completion],
        advantage_N: FloatArray,
        models: Models,
        learners: "Mapping[str, Learner]",
        step: Step,
    ) -> "list[Example]":
        """What the policy learns from, less the baseline of each token; the baseline is updated."""
        from posttrain.training.learner import Loss, evaluate_examples

        examples = [
            _example(turn, own, float(advantage), i)
            for i, (turn, own, advantage) in enumerate(zip(turns, fresh, advantage_N, strict=True))
        ]
        if self.baseline_role is None:
            return examples
        learner = learners[self.baseline_role]
        found = evaluate_examples(
            models[self.baseline_role], examples, frozenset({VALUE}), max_tokens=learner.tokens_at_a_time
        )
        loss = Loss(per_token=baseline_errors, reducer=self.reducer, needs=frozenset({VALUE}))
        learned = learner.step(examples, loss, progress=step.progress)
        step.record.computed_tokens += learned.computed_tokens
        step.record.metrics |= {f"baseline/{name}": value for name, value in learned.metrics.items()}
        return [
            replace(own, columns={**own.columns, ADVANTAGE: own.columns[ADVANTAGE] - value[VALUE]})
            for own, value in zip(examples, found, strict=True)
        ]

    def _fit_policy(self, examples: "Sequence[Example]", learner: "Learner", step: Step) -> "Learned":
        """One update of the policy with turns that it has just written."""
        from posttrain.training.learner import Loss

        loss = Loss(
            per_token=self.objective,
            reducer=self.reducer,
            needs=trained_in(self.objective.needs),
            temperature=self.rollout.temperature,
        )
        return learner.step(examples, loss, progress=step.progress)


def baseline_errors(tokens: Tokens) -> PerToken:
    """[T] the squared distance of each token's baseline from the advantage of its turn."""
    error_T = (tokens.advantage_T - tokens[VALUE]).square()
    return PerToken(loss_T=error_T, metrics={"error": error_T.detach()})


def squared_errors(tokens: Tokens, target_NO: FloatArray) -> PerToken:
    """[T] of a place at the end of a turn, the errors of both Q; of one before a turn, those of both V."""
    import torch

    score_TO = tokens[SCORES]
    target_TO = torch.as_tensor(target_NO).to(score_TO.device, score_TO.dtype)[tokens.group_N[tokens.sequence_T]]
    error_TO = (score_TO - target_TO).square()
    action_T = tokens.turn_T == _ACTION
    loss_T = torch.where(action_T, error_TO[:, :HEADS].sum(1), error_TO[:, HEADS:].sum(1))
    metrics = {
        "q": score_TO[action_T][:, :HEADS].mean(1),
        "v": score_TO[~action_T][:, HEADS:].mean(1),
        "q_error": error_TO[action_T][:, :HEADS].mean(1),
        "v_error": error_TO[~action_T][:, HEADS:].mean(1),
    }
    return PerToken(loss_T=loss_T, metrics={name: values.detach() for name, values in metrics.items()})


def read_outputs(policy: "Policy", texts: Sequence[IntArray], learner: "Learner") -> FloatArray:
    """[N, 4] outputs of a model at the end of each text; equal texts are computed once."""
    from posttrain.training.learner import evaluate_examples
    from posttrain.training.packing import Example

    places = {text.tobytes(): text for text in texts}
    order = {key: i for i, key in enumerate(places)}
    examples = [
        Example(token_ids=ids, positions=np.array([len(ids) - 1]), columns={}, turn_T=np.zeros(1, np.int64), group=i)
        for i, ids in enumerate(places.values())
    ]
    found = evaluate_examples(policy, examples, frozenset({SCORES}), max_tokens=learner.tokens_at_a_time)
    score_MO = np.stack([own[SCORES][0] for own in found])
    return np.asarray(score_MO[[order[text.tobytes()] for text in texts]], np.float32)


def _length(completion: Completion) -> int:
    return len(completion.token_ids)


def _example(turn: StoredTurn, own: Completion, advantage: float, group: int) -> "Example":
    """A fresh turn, all of whose tokens have one advantage."""
    from posttrain.training.packing import Example

    count, begin = len(own.token_ids), len(turn.context)
    logp = np.asarray(own.logp, np.float32)
    return Example(
        token_ids=np.concatenate([turn.context, own.token_ids]),
        positions=np.arange(begin, begin + count),
        columns={ADVANTAGE: np.full(count, advantage, np.float32), BEHAVIOR_LOGP: logp, OLD_LOGP: logp},
        turn_T=np.zeros(count, np.int64),
        group=group,
    )


def _record(
    record: StepRecord,
    turns: Sequence[StoredTurn],
    fresh: Sequence[Completion],
    examples: "Sequence[Example]",
    learned: "Learned",
    tasks: Mapping[str, Task],
) -> None:
    """Record the fresh turns after the rows that are there."""
    free = max((row.group + 1 for row in record.rows), default=0)
    for i, (turn, own) in enumerate(zip(turns, fresh, strict=True)):
        if turn.task not in tasks:
            continue
        state = Segment(actor="prompt", token_ids=turn.context)
        written = Segment(actor="policy", token_ids=own.token_ids, logp=own.logp, trained=True)
        trajectory = Trajectory(task=tasks[turn.task], segments=(state, written), stop_reason=own.stop_reason)
        columns = {ADVANTAGE.column: np.asarray(examples[i].columns[ADVANTAGE], np.float32)}
        if LOGP in learned.signals[i]:
            columns[LOGP.column] = learned.signals[i][LOGP]
        record.rows.append(Row(trajectory=trajectory, group=free + i, columns=columns))
