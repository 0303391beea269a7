"""Updates of roles from a batch and its advantages."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from posttrain.components.balances import Shares
from posttrain.components.corrections import Correction
from posttrain.components.objectives import Objective
from posttrain.components.penalties import Penalty
from posttrain.components.reducers import Reducer
from posttrain.signals import roles_in, trained_in
from posttrain.stages import Models
from posttrain.stages.loss import combine
from posttrain.stages.record import StepRecord
from posttrain.stages.rl.credit import columns_of
from posttrain.stages.rl.imitation import joined
from posttrain.training.settings import Learning
from posttrain.types import Batch, Credit

if TYPE_CHECKING:
    from posttrain.training.learner import Learner


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
        name: Learner(models[update.model or name], update.learning, seed=seed, num_steps=steps[name])
        for name, update in updates.items()
    }


def learn(
    updates: Mapping[str, Update],
    learners: "Mapping[str, Learner]",
    models: Models,
    both: tuple[tuple[Batch, Credit], tuple[Batch, Credit]],
    shares: Shares,
    penalties: Mapping[str, Penalty],
    index_G: Sequence[int],
    record: StepRecord,
) -> None:
    """Do every update once, and record metrics and rollouts.

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
    for name, update in updates.items():
        (batch, credit), places = rows[update.rows]
        if batch.groups:
            _learn(name, update, learners[name], models, batch, credit, shares, penalties, places, record)


def _learn(
    name: str,
    update: Update,
    learner: "Learner",
    models: Models,
    batch: Batch,
    credit: Credit,
    shares: Shares,
    penalties: Mapping[str, Penalty],
    index_G: Sequence[int],
    record: StepRecord,
) -> None:
    """One update, with its record."""
    from posttrain.training.learner import Loss
    from posttrain.training.packing import example_of

    columns = columns_of(batch, credit)
    added = penalties if update.penalized else {}
    needs = trained_in(update.objective.needs.union(*(penalty.needs for penalty in added.values())))
    loss = Loss(
        per_token=combine(update.objective, added, update.correction),
        reducer=update.reducer,
        needs=needs,
        others={other: models[other] for other in roles_in(needs)},
        shares=shares if update.penalized else Shares(),
        temperature=update.temperature,
        whole_groups=update.objective.whole_groups or any(penalty.whole_groups for penalty in added.values()),
    )
    examples = [
        example_of(trajectory, own, group=int(group), group_solved=batch.groups[group].solved, role=update.role)
        for trajectory, own, group in zip(batch.trajectories, columns, batch.group_N, strict=True)
    ]
    learned = learner.step(examples, loss, progress=batch.progress)
    record.learn(name, batch, index_G, columns, learned, writer=update.model or None)
