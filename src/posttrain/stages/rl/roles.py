"""How each trained role learns: the stage's settings, and those of single roles."""

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import NonNegativeInt, PositiveInt

from posttrain.component import frozen, nearest
from posttrain.components.advantages import Advantage
from posttrain.components.hooks import Hook, RoleState
from posttrain.components.objectives import Objective
from posttrain.components.penalties import Penalty
from posttrain.errors import UserError
from posttrain.signals import Signal
from posttrain.stages import Models
from posttrain.stages.fit import Step
from posttrain.stages.rl.collect import learned_by
from posttrain.stages.rl.credit import batch_of
from posttrain.stages.rl.imitation import Taught, credit_of, of_experts
from posttrain.stages.rl.metrics import signal_metrics
from posttrain.stages.rl.signals import signals_for
from posttrain.stages.rl.update import Update, learn
from posttrain.training.settings import Learning
from posttrain.types import Credit, Group

if TYPE_CHECKING:
    from posttrain.training.learner import Learner

Phase = Callable[[str], AbstractContextManager[None]]
"""Counts the seconds inside towards a phase of the step."""


@frozen
class RoleLearning:
    """Learning settings of one role; those that are None are the stage's."""

    RENAMED: ClassVar = {"alone": "warmup_steps"}

    advantage: Advantage | None = None
    objective: Objective | None = None
    learner: Learning | None = None
    """How it is updated."""
    critic: str | None = None
    """Role of the model that gives its values, if its advantage needs values. No critic serves two roles. A role with a
    projection may be its own, whose values are learned by a term of its loss (the penalty ``value``)."""
    every: PositiveInt = 1
    """Update every N steps."""
    warmup_steps: NonNegativeInt = 0
    """Steps at the start in which the role is updated at every step, and roles without a warm-up are not."""


@dataclass(frozen=True, kw_only=True)
class RoleTraining:
    """How one role is trained on the scored rollouts of a step."""

    role: str
    advantage: Advantage
    penalties: Mapping[str, Penalty]
    needs: frozenset[Signal]
    """Signals that are computed before advantages."""
    updates: Mapping[str, Update]
    """By role: its own update, and its critic's."""
    critic: str | None
    temperature: float
    every: int
    warmup_steps: int

    def heated(self, temperature: float) -> "RoleTraining":
        """The same at the sampling temperature of a step."""
        if temperature == self.temperature:
            return self
        updates = {name: replace(update, temperature=temperature) for name, update in self.updates.items()}
        return replace(self, temperature=temperature, updates=updates)

    def due(self, step: int, warmup: int) -> bool:
        """Whether the role is updated in a step, counted from 0. `warmup` is that of the stage, see `warmup_of`."""
        if step < warmup:
            return step < self.warmup_steps
        return (step - warmup + 1) % self.every == 0

    def start(self) -> dict[str, Any]:
        """State of its advantage and penalties before the first step."""
        return {
            "advantage": self.advantage.start(),
            "penalties": {name: penalty.start() for name, penalty in self.penalties.items()},
        }

    def update(
        self,
        groups: Sequence[Group],
        taught: Taught,
        models: Models,
        learners: "Mapping[str, Learner]",
        memory: dict[str, Any],
        step: Step,
        phase: Phase,
    ) -> None:
        """Compute advantages of the rollouts that the role learns from, and update it. Changes `memory` in place."""
        shown = taught.shown
        index_G = [i for i, group in enumerate(groups) if any(self.role in t.learners for t in group)]
        free = max([len(groups), *(row.group + 1 for row in step.record.rows)])
        index_G += range(free, free + len(shown))
        own = learned_by(self.role, groups)
        if not own and not shown:
            return
        penalties = {name: penalty.at(memory["penalties"][name]) for name, penalty in self.penalties.items()}
        count = sum(map(len, own))
        with phase("signals"):
            signals = signals_for(
                [*own, *shown],
                self.needs,
                models,
                learners[self.role].tokens_at_a_time,
                self.temperature,
                role=self.role,
                critic=taught.critic or self.critic or "critic",
                workers=learners[self.role].workers,
                with_old=None if self.updates[self.role].objective.uses_old else count,
            )
        batch = batch_of(
            own, {signal: values[:count] for signal, values in signals.items()}, penalties, step.progress, learners
        )
        credit = Credit(advantages=())
        if own:
            memory["advantage"], credit = self.advantage(memory["advantage"], batch)
            for name, penalty in penalties.items():
                memory["penalties"][name] = penalty.observe(memory["penalties"][name], batch)
            penalties = {name: penalty.at(memory["penalties"][name]) for name, penalty in self.penalties.items()}
            step.record.add_metrics(self.role, signal_metrics(batch, learners) | dict(credit.metrics))
        given = of_experts(shown, {signal: values[count:] for signal, values in signals.items()}, step.progress)
        both = (batch, credit), (given, credit_of(given, values=bool(credit.value_targets)))
        with phase("learn"):
            learn(self.updates, learners, models, both, taught, penalties, index_G, step.record)


def warmup_of(trainings: Mapping[str, RoleTraining]) -> int:
    """Steps at the start in which only roles with a warm-up are updated."""
    return max((training.warmup_steps for training in trainings.values()), default=0)


def steps_of(trainings: Mapping[str, RoleTraining], steps: int) -> dict[str, int]:
    """For each role that is updated, critics included, the number of steps in which it is."""
    warmup = warmup_of(trainings)
    due = {role: sum(training.due(step, warmup) for step in range(steps)) for role, training in trainings.items()}
    return {name: max(due[role], 1) for role, training in trainings.items() for name in training.updates}


def updates_of(trainings: Mapping[str, RoleTraining]) -> dict[str, Update]:
    """All updates of a step by role, critics included."""
    return {role: update for training in trainings.values() for role, update in training.updates.items()}


def role_states(
    models: Models,
    learners: "Mapping[str, Learner]",
    memories: Mapping[str, dict[str, Any]],
    trainings: Mapping[str, RoleTraining],
) -> dict[str, RoleState]:
    """The state of every role of the stage."""
    return {
        role: RoleState(
            role=role,
            model=model,
            learner=learners.get(role),
            state=memories.get(role, {}),
            initial=trainings[role].start() if role in trainings else {},
        )
        for role, model in models.items()
    }


def check_roles(by_role: Mapping[str, RoleLearning], writers: AbstractSet[str], critic: Objective | None) -> None:
    """Raise `UserError` for settings of roles that do not learn from rollouts, and for critics that are shared."""
    for role, own in by_role.items():
        if role not in writers:
            raise UserError(
                f"by_role.{role}: only a trained model with a language head learns from rollouts; "
                f"{nearest(role, writers)}, or set models.{role}.trained=true"
            )
        if own.critic not in (None, role) and critic is None:
            raise UserError(f"by_role.{role}.critic names a critic, but the stage has no loss for one; set critic")
    critics = [own.critic for own in by_role.values() if own.critic] + (["critic"] if critic is not None else [])
    policy = by_role.get("policy")
    if policy is not None and policy.critic is not None and critic is not None:
        critics.remove("critic")
    shared = sorted({name for name in critics if critics.count(name) > 1})
    if shared:
        raise UserError(f"the critic '{shared[0]}' serves two roles; give each one of its own as by_role.ROLE.critic")


def check_hooks(hooks: Mapping[str, Hook], models: Models) -> None:
    """Raise `UserError` for a frozen model that a hook would change although no checkpoint saves it.

    `models` are those that are loaded at the start of the run; copies, which are saved, are not among them.
    """
    for name, hook in hooks.items():
        for role in sorted(hook.changed & models.keys()):
            if not any(parameter.requires_grad for parameter in models[role].parameters()):
                raise UserError(
                    f"hooks.{name} changes the role '{role}', whose model is neither trained nor a copy; "
                    f"write models.{role}.source=role:policy"
                )
