"""Supervised fine-tuning: raise the likelihood of demonstrations, token by token."""

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING, Self

import numpy as np
from pydantic import PositiveFloat, PositiveInt, model_validator
from pydantic_core import PydanticCustomError

from posttrain.component import frozen
from posttrain.components.environments import with_opening
from posttrain.components.objectives import Objective
from posttrain.components.penalties import Penalty
from posttrain.components.reducers import Reducer
from posttrain.components.tasks import Tasks
from posttrain.errors import UserError
from posttrain.models import Model
from posttrain.signals import ADVANTAGE, OLD_VALUE, Signal, columns_in, roles_in, trained_in
from posttrain.stages import Models, PreviewContext, Stage, StageContext
from posttrain.stages.columns import with_columns
from posttrain.stages.fit import Step, check_trained, fit_role, steps_in
from posttrain.stages.loss import combine
from posttrain.stages.needs import Need, needs_of, parts_of
from posttrain.stages.order import shuffled
from posttrain.training.settings import Learning
from posttrain.types import Message, Segment, Task, Trajectory, Utterance

Shown = str | tuple[Utterance, ...]
"""What is imitated: a completion, or an episode in which policy and world take turns."""

if TYPE_CHECKING:
    from posttrain.policies import Policy
    from posttrain.training.packing import Example


@frozen
class SFT(Stage):
    """Supervised fine-tuning on the demonstrations of the tasks, completions only."""

    objective: Objective
    reducer: Reducer
    batch: PositiveInt = 32
    """Demonstrations per optimizer step."""
    epochs: PositiveFloat = 1.0
    """Passes over the demonstrations; a part of one is allowed."""
    max_steps: PositiveInt | None = None
    """Stops earlier than the epochs would."""
    learner: Learning = Learning()
    """How the model is updated."""
    regularizers: Mapping[str, Penalty] = field(default_factory=dict)
    """By name, penalties that are added to the loss: distance from another model, entropy, ..."""
    role: str = "policy"
    """The model that imitates: the policy, or a teacher, a guide, ... that is made ready for later stages."""
    tasks: Tasks | None = None
    """Problems of this stage; None takes the recipe's."""

    @model_validator(mode="after")
    def check_parts(self) -> Self:
        """Refuse what there is no reward and no critic for."""
        for name, penalty in self.regularizers.items():
            if not penalty.acts_in_loss or penalty.start():
                why = "acts in the reward" if not penalty.acts_in_loss else "is steered by rewarded attempts"
                raise PydanticCustomError("regularizers", f"'{name}' {why}, and an sft stage has none; leave it out")
        if OLD_VALUE in self.needs:
            raise PydanticCustomError("needs", "an sft stage has no critic to give values")
        return self

    @property
    def needs(self) -> frozenset[Signal]:
        """Signals that the objective and the regularizers read."""
        return self.objective.needs.union(*(penalty.needs for penalty in self.regularizers.values()))

    @property
    def roles(self) -> frozenset[str]:
        """The role that imitates, and those that it is compared with."""
        return frozenset({self.role}) | roles_in(self.needs)

    def needed(self, models: Mapping[str, Model]) -> Sequence[Need]:
        """What the objective and the regularizers need."""
        return [need for path, part in parts_of(self) for need in needs_of(path, part, role=self.role)]

    def check(self, models: Models, tasks: Sequence[Task]) -> None:
        """Every demonstration must fit into the context of the model, which must be trained."""
        model = models.get(self.role)
        if model is not None:
            check_trained(model, self.role, f"the {self.kind} stage")
        for task, text in self.pairs(tasks):
            demonstration(model or models["policy"], task, text)  # a copy of a role that is yet to be made

    def run(self, models: Models, context: StageContext) -> Models:
        """Train on the demonstrations in a seeded order, new in every epoch."""
        from posttrain.training.learner import Loss

        pairs = self.pairs(context.tasks)
        own, columns = trained_in(self.needs), columns_in(self.needs)

        def examples(step: Step) -> "list[Example]":
            order = self.order(len(pairs), step.index, context.seed)
            step.record.metrics["epoch"] = (step.index + 1) * self.batch / len(pairs)
            key = context.seed, step.index
            chosen = [self.example(models[self.role], *pairs[i], *key, place) for place, i in enumerate(order)]
            if not columns:
                return chosen
            with context.phase("signals"):
                return with_columns(chosen, columns, models, role=self.role, learning=self.learner)

        loss = Loss(
            per_token=combine(self.objective, self.regularizers, None),
            reducer=self.reducer,
            needs=own,
            others={role: models[role] for role in roles_in(own)},
        )
        steps = self.total_steps(context.tasks)
        return fit_role(
            context, models, role=self.role, learning=self.learner, loss=loss, steps=steps, examples=examples
        )

    def total_steps(self, tasks: Sequence[Task]) -> int:
        """Optimizer steps that the epochs come to, at least one."""
        return steps_in(len(self.pairs(tasks)), batch=self.batch, epochs=self.epochs, max_steps=self.max_steps)

    def pairs(self, tasks: Sequence[Task]) -> list[tuple[Task, Shown]]:
        """Every task with each of its demonstrations and episodes."""
        pairs: list[tuple[Task, Shown]] = []
        for task in tasks:
            pairs += [(task, text) for text in task.demonstrations]
            pairs += [(task, episode) for episode in task.episodes]
        if not pairs:
            raise UserError(
                f"none of the {len(tasks)} tasks has a demonstration to imitate; give a column named completion, "
                "response, demonstration or solution, messages that end with the assistant, or leave the sft stage out"
            )
        return pairs

    def preview(self, models: Models, context: PreviewContext) -> list[str]:
        """The size of the work and the first demonstration."""
        pairs = self.pairs(context.tasks)
        examples = [
            self.example(models.get(self.role, models["policy"]), task, text) for task, text in pairs[: self.batch]
        ]
        tokens = sum(e.num_trained for e in examples) / len(examples)
        task, text = pairs[0]
        return [
            f"{len(pairs)} demonstrations, {self.total_steps(context.tasks)} steps of {self.batch}",
            f"{tokens:.1f} trained tokens per demonstration (mean of the first {len(examples)})",
            f"first prompt: {task.prompt!r}",
            f"first demonstration: {text if isinstance(text, str) else ''.join(part.text for part in text)!r}",
        ]

    def example(self, policy: "Policy", task: Task, text: Shown, *key: int) -> "Example":
        """The prompt, then the demonstration and the end token, which are trained. What a model draws for it, a flow
        for example, is a function of the key.
        """
        from posttrain.training.packing import example_of

        trajectory = demonstration(policy, task, text, *key)
        return example_of(trajectory, {ADVANTAGE: np.ones(trajectory.num_trained, np.float32)})

    def order(self, count: int, step: int, seed: int) -> list[int]:
        """Indices of a step's demonstrations: consecutive places in an endless row of seeded shuffles."""
        return shuffled(count, self.batch, step, seed)


def demonstration(policy: "Policy", task: Task, shown: Shown, *key: int) -> Trajectory:
    """A demonstration as a trajectory. Raises `UserError` when it does not fit into the model's context."""
    own = policy.demonstration(task, shown, *key) if isinstance(shown, str) else None
    if own is not None:
        return own
    said = (Utterance(actor="policy", text=shown),) if isinstance(shown, str) else shown
    opening = said[0].text if said[0].actor == "environment" else ""
    prompt = with_opening(task.prompt, opening)
    asked = policy.prompt(replace(task, prompt=prompt))
    parts = episode_segments(policy, prompt, said[1:] if opening else said)
    length = sum(map(len, parts))
    if len(asked) + length > policy.context:
        raise UserError(
            f"task {task.key}: prompt ({len(asked)} tokens) and demonstration ({length}) together pass the "
            f"model's context of {policy.context} tokens; shorten or leave out the row, or raise "
            "models.policy.context if the model allows it"
        )
    if not len(asked):  # Nothing precedes the first token of a bare text, so it cannot be learned.
        first = parts[0].token_ids
        asked, parts[0] = replace(asked, token_ids=first[:1]), replace(parts[0], token_ids=first[1:])
    return Trajectory(task=task, segments=(asked, *parts), stop_reason="stop")


def episode_segments(policy: "Policy", prompt: str | tuple[Message, ...], said: Sequence[Utterance]) -> list[Segment]:
    """What came after the prompt: the policy's turns are imitated, what the world said is not."""
    tokenizer = policy.tokenizer
    segments: list[Segment] = []
    for utterance in said:
        turn = sum(s.trained for s in segments)
        if utterance.actor == "policy":
            if utterance.ended:
                ids = tokenizer.encode_completion(prompt, utterance.text)
            else:
                ids = tokenizer.encode_open(utterance.text)
            segments.append(Segment(actor="demonstration", token_ids=ids, trained=True, turn=turn, text=utterance.text))
        else:
            before = segments[-1].token_ids if segments else np.zeros(0, np.int64)
            ids = tokenizer.encode_reply(prompt, before, Message(role="user", content=utterance.text))
            segments.append(Segment(actor="environment", token_ids=ids, turn=turn, text=utterance.text))
    return segments
