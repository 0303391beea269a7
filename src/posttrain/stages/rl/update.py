"""Updates of roles from a batch and its advantages."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Literal

from posttrain.components.balances import Shares
from posttrain.components.corrections import Correction
from posttrain.components.objectives import Objective
from posttrain.components.penalties import Penalty
from posttrain.components.reducers import Reducer
from posttrain.signals import roles_in, trained_in
from posttrain.stages import Models
from posttrain.stages.fit import read_by
from posttrain.stages.loss import combine
from posttrain.stages.record import StepRecord
from posttrain.stages.rl.credit import columns_of
from posttrain.stages.rl.imitation import Taught, credit_of, joined, of_experts
from posttrain.stages.rl.probe import Part, gradient_difference, slope
from posttrain.training.settings import Learning
from posttrain.types import Batch, Credit

if TYPE_CHECKING:
    from torch import Tensor

    from posttrain.policies import Policy
    from posttrain.training.learner import Learned, Learner


@dataclass(frozen=True, kw_only=True)
class Update:
    """How one role learns from the trajectories of a step."""

    learning: Learning
    objective: Objective
    reducer: Reducer
    rows: Literal["all", "rollouts", "experts"] = "all"
    """What it learns from: rollouts, demonstrations beside them, or both. A demonstration in a group of rollouts counts
    as one of them."""
    penalized: bool = True
    """Whether penalties that act in the loss are added; false for a critic."""
    correction: Correction | None = None
    role: str | None = None
    """The role whose tokens it learns from (`Segment.learner`); None learns from all trained tokens, as a critic."""
    model: str = ""
    """The role whose model it updates; empty for the name of the update."""
    temperature: float = 1.0
    """Temperature of the distribution that the tokens were drawn from."""


def make_learners(
    updates: Mapping[str, Update], models: Models, steps: Mapping[str, int], *, seed: int
) -> "dict[str, Learner]":
    """A learner for each update; `steps` is the number of steps in which each is done."""
    from posttrain.training.learner import Learner

    return {
        name: Learner(
            models[update.model or name],
            update.learning,
            seed=seed,
            num_steps=steps[name],
            others=read_by(update.learning, models),
        )
        for name, update in updates.items()
    }


def learn(
    updates: Mapping[str, Update],
    learners: "Mapping[str, Learner]",
    models: Models,
    both: tuple[tuple[Batch, Credit], tuple[Batch, Credit]],
    taught: Taught,
    penalties: Mapping[str, Penalty],
    index_G: Sequence[int],
    record: StepRecord,
) -> None:
    """Do every update once, and record metrics and rollouts. Updates of which none changes what another one reads may
    go on at the same time.

    `both` are rollouts and demonstrations beside them, each with its credit, and `index_G` numbers the groups of both
    in the record.
    """
    rollouts, experts = both
    count = len(rollouts[0].groups)
    rows = {
        "rollouts": (rollouts, index_G[:count]),
        "experts": (experts, index_G[count:]),
        "all": (joined(rollouts, experts), index_G),
    }
    due = []
    for name, update in updates.items():
        (batch, credit), places = rows[update.rows]
        if not batch.groups or name in taught.idle:
            continue
        part = _part(update, models, batch, credit, penalties, taught.shares)
        due.append(_Due(name, update, learners[name], batch, credit, places, part, read_by(update.learning, models)))
    for several in _apart(due) if not taught.validation else [[one] for one in due]:
        probed = bool(taught.validation) and several[0].update.penalized and several[0].update.rows == "all"
        own, learner, batch = several[0].update, several[0].learner, several[0].batch
        difference = _difference(own, learner, models, both, penalties) if probed else []
        found = learner.workers.together([partial(one.step, taught.epochs) for one in several])
        for one, learned in zip(several, found, strict=True):
            columns = columns_of(one.batch, one.credit)
            record.learn(one.name, one.batch, one.places, columns, learned, writer=one.update.model or None)
        if probed:
            shown = of_experts(taught.validation, {}, batch.progress)
            part = _part(own, models, shown, credit_of(shown, values=False), {}, Shares())
            record.metrics["validation_slope"] = slope(learner, difference, part, batch.progress)


@dataclass(frozen=True)
class _Due:
    """An update of this step."""

    name: str
    update: Update
    learner: "Learner"
    batch: Batch
    credit: Credit
    places: Sequence[int]
    part: "Part"
    others: "Mapping[str, Policy]"
    """Models that the optimizer reads."""

    @property
    def changed(self) -> set[int]:
        """What it changes."""
        return {id(p) for p in self.learner.policy.parameters() if p.requires_grad}

    @property
    def read(self) -> set[int]:
        """What it reads or changes."""
        _, loss = self.part
        models = [self.learner.policy, *loss.others.values(), *self.others.values()]
        return {id(p) for model in models for p in model.parameters()}

    def step(self, epochs: int | None) -> "Learned":
        """Do it."""
        examples, loss = self.part
        return self.learner.step(examples, loss, progress=self.batch.progress, epochs=epochs)


def _apart(due: Sequence[_Due]) -> list[list[_Due]]:
    """The updates in their order, in lists of which none changes what another one of its list reads."""
    found: list[list[_Due]] = []
    for one in due:
        if found and not any(one.changed & other.read or other.changed & one.read for other in found[-1]):
            found[-1].append(one)
        else:
            found.append([one])
    return found


def _difference(
    update: Update,
    learner: "Learner",
    models: Models,
    both: tuple[tuple[Batch, Credit], tuple[Batch, Credit]],
    penalties: Mapping[str, Penalty],
) -> "list[Tensor]":
    """Gradient of the imitation loss minus that of the reinforcement loss."""
    rollouts, experts = (_part(update, models, batch, credit, penalties, Shares()) for batch, credit in both)
    return gradient_difference(learner, rollouts, experts, both[0][0].progress)


def _part(
    update: Update,
    models: Models,
    batch: Batch,
    credit: Credit,
    penalties: Mapping[str, Penalty],
    shares: Shares,
) -> "Part":
    """The examples of a batch, and the loss of them."""
    from posttrain.training.learner import Loss
    from posttrain.training.packing import example_of

    added = penalties if update.penalized else {}
    needs = trained_in(update.objective.needs.union(*(penalty.needs for penalty in added.values())))
    loss = Loss(
        per_token=combine(update.objective, added, update.correction),
        reducer=update.reducer,
        needs=needs,
        others={other: models[other] for other in roles_in(needs)},
        shares=shares if update.penalized else Shares(),
        temperature=update.temperature,
        foresight=update.objective.foresight,
        whole_groups=update.objective.whole_groups or any(penalty.whole_groups for penalty in added.values()),
        whole_batch=any(penalty.whole_batch for penalty in added.values()),
    )
    examples = [
        example_of(trajectory, own, group=int(group), group_solved=batch.groups[group].solved, role=update.role)
        for trajectory, own, group in zip(batch.trajectories, columns_of(batch, credit), batch.group_N, strict=True)
    ]
    return examples, loss
