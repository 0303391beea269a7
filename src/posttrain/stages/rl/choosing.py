"""How a stage uses its curriculum: what it measures, what it chooses, and what the curriculum's model learns."""

import asyncio
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from posttrain.components.curricula import Curriculum, Pick, Target
from posttrain.components.reducers import Reducer
from posttrain.components.rewards import Reward, RewardContext
from posttrain.components.rollouts import Rollout
from posttrain.datasets.keys import problem
from posttrain.engines import Sampler, wait_for
from posttrain.errors import UserError
from posttrain.signals import SCORE, VALUE_TARGET
from posttrain.stages import Models, StageContext
from posttrain.stages.fit import Step, check_trained, read_by
from posttrain.stages.rl.collect import collect_groups, split_failed, unaided
from posttrain.stages.rl.metrics import outcomes
from posttrain.stages.rl.together import Joined, Lists, pool_of
from posttrain.training.settings import Learning
from posttrain.types import Fact, FloatArray, Group, IntArray, PerToken, Task, Tokens

if TYPE_CHECKING:
    from posttrain.training.learner import Learner
    from posttrain.training.packing import Example


@dataclass(frozen=True, kw_only=True)
class Choosing:
    """The curriculum of a stage in a run."""

    curriculum: Curriculum
    rollout: Rollout
    reward: Reward
    reducer: Reducer
    learning: Learning
    """How the model of the curriculum is updated."""
    lists: Lists | None = None
    """The tasks that the reward scores together."""

    def learners(self, models: Models, *, seed: int, steps: int) -> "dict[str, Learner]":
        """A learner of the model that learns from the curriculum's targets, if there is one."""
        from posttrain.training.learner import Learner

        role = self.curriculum.taught
        if role is None:
            return {}
        check_trained(models[role], role, "the curriculum")
        others = read_by(self.learning, models)
        return {role: Learner(models[role], self.learning, seed=seed, num_steps=steps, others=others)}

    def choose(
        self, models: Models, context: StageContext, step: Step, memory: dict[str, Any], count: int, refill: int
    ) -> list[Pick]:
        """Look, then choose; the curriculum's state in `memory` is replaced by the new one."""
        before = context.sampled_tokens(models)
        probe = _Probe(choosing=self, models=models, context=context, step=step, refill=refill)
        where: dict[str, Any] = {"seed": context.seed, "step": step.index, "refill": refill}
        pool = pool_of(self.lists, context.tasks)
        state = wait_for(self.curriculum.look(memory["curriculum"], pool, probe, count, **where))
        memory["curriculum"], picks = self.curriculum.select(state, pool, count, **where)
        metrics = step.record.metrics
        for name, tokens in (
            ("probe_tokens", context.sampled_tokens(models) - before),
            ("probe_prompt_tokens", sum(probe.read)),
        ):
            if tokens or name in metrics:
                metrics[name] = metrics.get(name, 0.0) + float(tokens)
        return picks

    def observe(self, memory: dict[str, Any], groups: Sequence[Group], step: Step) -> list[Target]:
        """Show the outcome of the step to the curriculum; returns what its model learns."""
        own = self.seen(by_outcome(unaided(groups)))
        memory["curriculum"] = self.curriculum.observe(memory["curriculum"], own)
        report = self.curriculum.report(memory["curriculum"])
        step.record.metrics |= {f"curriculum/{name}": float(value) for name, value in report.items()}
        return self.curriculum.targets(memory["curriculum"], own) if self.curriculum.taught is not None else []

    def first(self, tasks: Sequence[Task], count: int, seed: int) -> list[Task]:
        """The choice of the first step, without what the curriculum would measure before."""
        start = self.curriculum.start()
        _, picks = self.curriculum.select(start, pool_of(self.lists, tasks), count, seed=seed, step=0)
        return [pick.task for pick in picks]

    def joined(self, rollout: Rollout) -> Rollout:
        """The rollout of a choice: of all tasks that are scored together with the chosen one."""
        return rollout if self.lists is None else Joined(of=rollout, lists=self.lists)

    def seen(self, groups: list[Group]) -> list[Group]:
        """The groups as the curriculum has its tasks."""
        return groups if self.lists is None else self.lists.seen(groups)

    def teach(self, targets: Sequence[Target], models: Models, learners: "Mapping[str, Learner]", step: Step) -> None:
        """Update the model of the curriculum."""
        from posttrain.training.learner import Loss

        role = self.curriculum.taught
        if role is None or not targets:
            return
        loss = Loss(per_token=_Squared(squash=self.curriculum.squashes), reducer=self.reducer, needs=frozenset({SCORE}))
        learned = learners[role].step(_examples(targets, models[role]), loss, progress=step.progress)
        step.record.add_metrics(role, learned.metrics)
        step.record.computed_tokens += learned.computed_tokens


def by_outcome(groups: Sequence[Group]) -> list[Group]:
    """The groups with one rollout for each outcome, the last one of an episode that is several rollouts."""
    return [replace(group, trajectories=tuple(outcomes(group.trajectories))) for group in groups]


def check_pool(memory: dict[str, Any], tasks: Sequence[Task], stage: str) -> None:
    """Remember the pool, or raise `UserError` where a continued stage has another one than its curriculum observed."""
    digest = hashlib.sha256("\0".join(task.key for task in tasks).encode()).hexdigest()
    pool = memory.setdefault("pool", {"tasks": len(tasks), "digest": digest})
    if pool["digest"] != digest:
        raise UserError(
            f"stage {stage}: there are {len(tasks)} tasks, and they are not the {pool['tasks']} (or not in the order) "
            "that its curriculum has observed so far; what it remembers of them would be of other tasks. Put back the "
            "tasks as they were, or start a new run"
        )


def visits(curriculum: Curriculum, steps: int, prompts: int, tasks: int) -> list[str]:
    """A line about how often each task is chosen, for a curriculum that learns about single tasks."""
    if not curriculum.remembers_tasks:
        return []
    mean = steps * prompts / max(tasks, 1)
    line = f"curriculum {curriculum.kind}: {steps * prompts:,} choices among {tasks:,} tasks, {mean:.2g} visits of each"
    few = (
        "; below 1, most are chosen before anything is known of them: use fewer tasks, more steps, or a curriculum of "
        "categories (bandit, ucb) or features (predicted)"
    )
    return [line + few * (mean < 1.0)]


async def collect_picks(
    picks: Sequence[Pick],
    rollout: Rollout,
    reward: Reward,
    samplers: Sequence[Mapping[str, Sampler]],
    context: RewardContext,
) -> list[Group]:
    """`collect_groups` for chosen tasks; every rollout has the facts of its choice."""

    async def one(place: int, pick: Pick, bound: Mapping[str, Sampler]) -> list[Group]:
        own = replace(context, place=context.place + place)
        groups = await collect_groups([pick.task], rollout, reward, [bound], own)
        return with_facts(groups, pick.facts)

    pairs = enumerate(zip(picks, samplers, strict=True))
    collected = await asyncio.gather(*(one(place, pick, bound) for place, (pick, bound) in pairs))
    return [group for groups in collected for group in groups]


def with_facts(groups: list[Group], facts: tuple[Fact, ...]) -> list[Group]:
    """The groups with further facts on every rollout."""
    if not facts:
        return groups
    return [replace(g, trajectories=tuple(replace(t, facts=(*t.facts, *facts)) for t in g)) for g in groups]


@dataclass(frozen=True, kw_only=True)
class _Probe:
    """What the curriculum may use of the run in one choice."""

    choosing: Choosing
    models: Models
    context: StageContext
    step: Step
    refill: int
    read: list[int] = field(default_factory=list)
    """Number of tokens of each text that a model read."""

    @property
    def samplers(self) -> Mapping[str, Sampler]:
        """The models by role."""
        return self._bound("models")

    @property
    def held_out(self) -> frozenset[str]:
        """The problems of the held-out tasks."""
        return frozenset(map(problem, self.context.held_out))

    async def collect(self, tasks: Sequence[Task], n: int | None) -> list[Group]:
        """The scored rollouts of each task."""
        uniform = np.random.default_rng([self.context.seed, self.step.index, self.refill, 0x4C6F]).random()
        rollout = _sized(self.choosing.rollout, n).at(self.step.progress).drawn(float(uniform))
        rollout = self.choosing.joined(rollout)
        samplers = [self._bound(place) for place in range(len(tasks))]
        scoring = RewardContext(
            progress=self.step.progress, step=self.step.index, seed=self.context.seed, learning=True
        )
        groups = await collect_groups(tasks, rollout, self.choosing.reward, samplers, scoring)
        by_key: dict[str, list[Group]] = {}
        for group in self.choosing.seen(by_outcome(split_failed(unaided(groups))[0])):
            by_key.setdefault(group.trajectories[0].task.key, []).append(group)
        return [
            Group(key=task.key, trajectories=tuple(t for group in by_key.get(task.key, ()) for t in group))
            for task in tasks
        ]

    async def mlp_inputs(self, role: str, token_ids: Sequence[IntArray]) -> list[FloatArray]:
        """The inputs of the last MLP for every token."""
        from posttrain.policies.mlp_inputs import last_mlp_inputs

        self.read.extend(map(len, token_ids))
        return last_mlp_inputs(self.models[role], role, token_ids)

    async def predict(self, role: str, tasks: Sequence[Task]) -> list[float]:
        """The score of each task's prompt."""
        sampler = self._bound("predict")[role]
        prompts = [sampler.prompt(task) for task in tasks]
        self.read.extend(len(prompt) for prompt in prompts)
        return list(await asyncio.gather(*(sampler.score(p.token_ids, vectors=p.vectors) for p in prompts)))

    def _bound(self, place: int | str) -> "dict[str, Sampler]":
        return self.context.samplers(self.models, self.step.index, "look", self.refill, place)


def _sized(rollout: Rollout, n: int | None) -> Rollout:
    """The rollout with another number of completions per task. Raises `UserError` for one without that setting."""
    if n is None:
        return rollout
    if "n" not in {own.name for own in fields(rollout)}:  # type: ignore[arg-type]
        raise UserError(f"curriculum.n: the rollout '{rollout.kind}' has no number of rollouts; set curriculum.n=null")
    return replace(rollout, n=n)  # type: ignore[type-var]


@dataclass(frozen=True, kw_only=True)
class _Squared:
    """[T] squared error of predictions at the last tokens of prompts."""

    squash: bool

    def __call__(self, tokens: Tokens) -> PerToken:
        """The loss, with the mean prediction."""
        assert tokens.value_target_T is not None, "every example has one"
        predicted_T = tokens[SCORE].sigmoid() if self.squash else tokens[SCORE]
        return PerToken(loss_T=(predicted_T - tokens.value_target_T) ** 2, metrics={"predicted": predicted_T.detach()})


def _examples(targets: Sequence[Target], policy: Any) -> "list[Example]":
    """The prompts, trained at their last tokens."""
    from posttrain.training.packing import Example

    return [
        Example(
            token_ids=ids,
            positions=np.array([len(ids) - 1], np.int64),
            columns={VALUE_TARGET: np.array([target.value], np.float32)},
            turn_T=np.zeros(1, np.int64),
            group=place,
            reward=target.value,
        )
        for place, (ids, target) in enumerate((policy.tokenizer.encode_prompt(t.task.prompt), t) for t in targets)
    ]
