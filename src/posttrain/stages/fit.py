"""The training loop of every stage: count steps, learn, record, save, resume."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from posttrain.errors import UserError
from posttrain.stages.context import Models, StageContext
from posttrain.stages.record import StepRecord
from posttrain.training.settings import Learning

if TYPE_CHECKING:
    from posttrain.policies import Policy
    from posttrain.training.learner import Learner, Loss
    from posttrain.training.packing import Example


@dataclass(frozen=True, kw_only=True)
class Step:
    """One step of a stage."""

    index: int
    """Its number, from 0."""
    total: int
    """Steps of the stage."""
    record: StepRecord = field(default_factory=StepRecord)
    """Filled while the step runs."""

    @property
    def progress(self) -> float:
        """Share of the stage that was done before it, in [0, 1)."""
        return self.index / self.total


def fit(
    context: StageContext,
    models: Models,
    learners: "Mapping[str, Learner]",
    *,
    steps: int,
    memory: Mapping[str, Any] | None = None,
) -> Iterator[Step]:
    """Yields the remaining steps to a loop whose body samples, learns and fills ``step.record``::

        for step in fit(context, models, learners, steps=self.steps):
            ...

    The learners are restored before the first step. After the body, the step is recorded, and a checkpoint with the
    models, the learners and the `memory` (JSON, changed in place by the body) is saved if one is due. The steps end
    early where the context or a learner has no further one; the first is always done.
    """
    context.restore(learners)
    for index in range(context.steps_done, steps):
        if index and not (context.goes_on(index) and all(learner.goes_on for learner in learners.values())):
            return
        step = Step(index=index, total=steps)
        yield step
        context.finish_step(index + 1, step.record, memory or {}, learners, models)


def fit_role(
    context: StageContext,
    models: Models,
    *,
    role: str,
    learning: Learning,
    loss: "Loss",
    steps: int,
    examples: "Callable[[Step], Sequence[Example]]",
    drawn: tuple[int, int] | None = None,
    after: Callable[[Step, dict[str, Any]], None] | None = None,
) -> Models:
    """Train one role on the examples of each step; returns the models. Raises `UserError` for a frozen model.

    `drawn` are the expected batch and the number of records, where records are drawn independently for private updates.
    `examples` returns those of a step, and may add their metrics and trajectories to the step's record. `after` is
    called when a step has been learned from; its second argument is saved in checkpoints.
    """
    from posttrain.training.learner import Learner
    from posttrain.training.private import PrivateLearner

    policy = models[role]
    check_trained(policy, role, f"stage {context.name}")
    learner = (
        Learner(policy, learning, seed=context.seed, num_steps=steps, others=read_by(learning, models))
        if drawn is None or learning.privacy is None
        else PrivateLearner(policy, learning, seed=context.seed, num_steps=steps, batch=drawn[0], records=drawn[1])
    )
    memory = dict(context.memory or {})
    for step in fit(context, models, {role: learner}, steps=steps, memory=memory):
        batch = examples(step)
        with context.phase("learn"):
            learned = learner.step(batch, loss, progress=step.progress)
        step.record.metrics |= learned.metrics
        step.record.computed_tokens += learned.computed_tokens
        step.record.show(batch, learned)
        step.record.metrics["trained_tokens"] = float(sum(example.num_trained for example in batch))
        if after is not None:
            after(step, memory)
    return models


def read_by(learning: Learning, models: Models) -> "dict[str, Policy]":
    """The models whose weights the optimizer reads, by role."""
    return {role: models[role] for role in sorted(learning.optimizer.roles)}


def check_trained(policy: "Policy", role: str, stage: str) -> None:
    """Raise `UserError` for a model without a parameter to train."""
    if not any(parameter.requires_grad for parameter in policy.parameters()):
        raise UserError(f"{stage} trains the role '{role}', but models.{role}.trained is false; set it to true")


def steps_in(examples: int, *, batch: int, epochs: float, max_steps: int | None) -> int:
    """Number of steps of the epochs, at least one and at most `max_steps`."""
    steps = max(1, round(examples * epochs / batch))
    return min(steps, max_steps) if max_steps else steps
