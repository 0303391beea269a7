"""Demonstrations that a step learns from beside its rollouts, and the weights of both."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from posttrain.components.balances import Balance, Shares
from posttrain.components.experts import Experts, check_demonstrations
from posttrain.datasets.order import shuffled
from posttrain.signals import Signal
from posttrain.stages import Models
from posttrain.stages.sft import demonstration
from posttrain.types import Batch, Credit, FloatArray, Group, Task, Trajectory

if TYPE_CHECKING:
    from posttrain.policies import Policy

BALANCE = "balance"
"""Name of the tasks that the demonstrations of a balance's validation are from."""
EXPERTS = "experts"
"""Name of the demonstrations' own learner, and of the tasks that they are from."""


@dataclass(frozen=True, kw_only=True)
class Imitation:
    """What a stage learns from demonstrations beside its rollouts; without experts it is nothing."""

    experts: Experts | None
    balance: Balance | None
    pool: Sequence[Task]
    """The tasks that the demonstrations are from."""
    validated: Sequence[Task]
    """The tasks that those of the validation are from."""
    seed: int
    steps: int

    def start(self) -> dict[str, Any]:
        """State of its parts before the first step."""
        return {
            "experts": self.experts.start() if self.experts is not None else {},
            "balance": self.balance.start() if self.balance is not None else {},
        }

    def shares(self, memory: Mapping[str, Any], step: int) -> Shares:
        """The weights of both losses in a step; 1 each without a balance."""
        if self.balance is None:
            return Shares()
        return self.balance.shares(memory["balance"], seed=self.seed, step=step, steps=self.steps)

    def choose(
        self, memory: dict[str, Any], groups: Sequence[Group], shares: Shares, policy: "Policy", step: int
    ) -> list[Group]:
        """The step's demonstrations, each a group of one. Changes `memory` in place."""
        if self.experts is None or not shares.demonstrated:
            return []
        memory["experts"], shown = self.experts.choose(memory["experts"], self.pool, groups, seed=self.seed)
        found = (demonstration(policy, task, text, self.seed, step, i) for i, (task, text) in enumerate(shown))
        return [_group(trajectory) for trajectory in found]

    def validation(self, policy: "Policy", shares: Shares, step: int) -> list[Group]:
        """Demonstrations by which a balance measures its slope in a step that learns from both; else none."""
        count = self.balance.validated if self.balance is not None else 0
        if not count or not (shares.sampled and shares.demonstrated):
            return []
        shown = [(task, text) for task in self.validated for text in task.demonstrations]
        chosen = [shown[place] for place in shuffled(len(shown), count, step, self.seed + 1)] if shown else []
        return [_group(demonstration(policy, task, text, self.seed, step, i)) for i, (task, text) in enumerate(chosen)]

    def observe(self, memory: dict[str, Any], shares: Shares, metrics: dict[str, float]) -> None:
        """Let the balance see the metrics of a step, and add its shares to them. Changes both in place."""
        if self.balance is None:
            return
        metrics |= {"share/sampled": shares.sampled, "share/demonstrated": shares.demonstrated}
        memory["balance"] = self.balance.observe(memory["balance"], metrics)


@dataclass(frozen=True, kw_only=True)
class Taught:
    """What a role learns from in a step beside its rollouts, and how often."""

    shown: Sequence[Group] = ()
    """Demonstrations, each a group of one."""
    shares: Shares = field(default_factory=Shares)
    """Weights of the losses of rollouts and of demonstrations."""
    validation: Sequence[Group] = ()
    """Demonstrations by which the slope of the shares is measured."""
    critic: str | None = None
    """Role of the critic that gives the values of the step; None is that of the stage."""
    idle: frozenset[str] = frozenset()
    """Updates that are not done in the step: of other critics."""
    epochs: int | None = None
    """Epochs over the batch; None for those of each learner."""


def _group(trajectory: Trajectory) -> Group:
    return Group(key=trajectory.task.key, trajectories=(trajectory,))


def check_experts(models: Models, tasks: Sequence[Task]) -> None:
    """Raise `UserError` where no task has a demonstration, or one is too long for the model."""
    check_demonstrations(tasks)
    for task in tasks:
        for text in task.demonstrations:
            demonstration(models["policy"], task, text)


def of_experts(shown: Sequence[Group], signals: Mapping[Signal, tuple[FloatArray, ...]], progress: float) -> Batch:
    """The batch of demonstrations, without any reward."""
    rewards = tuple(np.zeros(t.num_trained, np.float32) for group in shown for t in group)
    return Batch(groups=tuple(shown), signals=signals, token_rewards=rewards, progress=progress)


def credit_of(batch: Batch, values: bool) -> Credit:
    """The credit of demonstrations: an advantage of 1 for every token, and no target for a critic."""
    lengths = [t.num_trained for t in batch.trajectories]
    return Credit(
        advantages=tuple(np.ones(length, np.float32) for length in lengths),
        value_targets=tuple(np.full(length, np.nan, np.float32) for length in lengths) if values else (),
    )


def joined(first: tuple[Batch, Credit], second: tuple[Batch, Credit]) -> tuple[Batch, Credit]:
    """Two batches with the same signals, and their credits, as one."""
    (a, of_a), (b, of_b) = first, second
    signals = {signal: (*values, *b.signals[signal]) for signal, values in a.signals.items()}
    batch = replace(
        a, groups=(*a.groups, *b.groups), signals=signals, token_rewards=(*a.token_rewards, *b.token_rewards)
    )
    credit = replace(
        of_a,
        advantages=(*of_a.advantages, *of_b.advantages),
        value_targets=(*of_a.value_targets, *of_b.value_targets),
    )
    return batch, credit
