"""Updates of roles from a batch and its advantages."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from posttrain.components.corrections import Correction
from posttrain.components.objectives import Objective
from posttrain.components.penalties import Penalty
from posttrain.components.reducers import Reducer
from posttrain.signals import roles_in, trained_in
from posttrain.stages import Models
from posttrain.stages.loss import combine
from posttrain.stages.record import StepRecord
from posttrain.stages.rl.credit import columns_of
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
    penalized: bool = True
    """Whether penalties that act in the loss are added; false for a critic."""
    correction: Correction | None = None
    role: str | None = None
    """The role whose tokens it learns from (`Segment.learner`); None learns from all trained tokens, as a critic."""
    temperature: float = 1.0
    """Temperature of the distribution that the tokens were drawn from."""


def make_learners(
    updates: Mapping[str, Update], models: Models, steps: Mapping[str, int], *, seed: int
) -> "dict[str, Learner]":
    """A learner for each role; `steps` is the number of steps in which each role is updated."""
    from posttrain.training.learner import Learner

    return {
        role: Learner(models[role], update.learning, seed=seed, num_steps=steps[role])
        for role, update in updates.items()
    }


def learn(
    updates: Mapping[str, Update],
    learners: "Mapping[str, Learner]",
    models: Models,
    batch: Batch,
    credit: Credit,
    penalties: Mapping[str, Penalty],
    index_G: Sequence[int],
    record: StepRecord,
) -> None:
    """Update every role once, and record metrics and rollouts; `index_G` numbers the groups in the record."""
    from posttrain.training.learner import Loss
    from posttrain.training.packing import example_of

    columns = columns_of(batch, credit)
    group_N: Sequence[int] = [int(g) for g in batch.group_N]
    for role, update in updates.items():
        added = penalties if update.penalized else {}
        needs = trained_in(update.objective.needs.union(*(penalty.needs for penalty in added.values())))
        loss = Loss(
            per_token=combine(update.objective, added, update.correction),
            reducer=update.reducer,
            needs=needs,
            others={other: models[other] for other in roles_in(needs)},
            temperature=update.temperature,
            whole_groups=update.objective.whole_groups or any(penalty.whole_groups for penalty in added.values()),
        )
        examples = [
            example_of(trajectory, own, group=group, group_solved=batch.groups[group].solved, role=update.role)
            for trajectory, own, group in zip(batch.trajectories, columns, group_N, strict=True)
        ]
        learned = learners[role].step(examples, loss, progress=batch.progress)
        record.learn(role, batch, index_G, columns, learned)
