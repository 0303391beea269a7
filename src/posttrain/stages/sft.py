"""Supervised fine-tuning: maximizes the likelihood of demonstrations, token by token."""

from collections.abc import Mapping, Sequence
from dataclasses import field, replace
from typing import TYPE_CHECKING, Literal, Self, TypeVar

import numpy as np
from pydantic import NonNegativeInt, PositiveFloat, PositiveInt, model_validator
from pydantic_core import PydanticCustomError

from posttrain.component import frozen
from posttrain.components.environments import with_opening
from posttrain.components.objectives import Objective
from posttrain.components.penalties import Penalty
from posttrain.components.reducers import Reducer
from posttrain.components.selections import Selection
from posttrain.components.tasks import Tasks
from posttrain.datasets.order import independent, shuffled
from posttrain.errors import TaskFault, UserError
from posttrain.models import Model
from posttrain.signals import ADVANTAGE, OLD_VALUE, Signal, columns_in, roles_in, trained_in
from posttrain.stages import Given, Models, PreviewContext, Stage, StageContext
from posttrain.stages.best import VALIDATION, Best, Validation
from posttrain.stages.columns import with_columns
from posttrain.stages.fit import Step, check_trained, fit_role, steps_in
from posttrain.stages.loss import combine
from posttrain.stages.needs import Need, needs_of, parts_of
from posttrain.stages.prompts import check_prompts
from posttrain.stages.weights import Weights
from posttrain.training.settings import Learning
from posttrain.types import FloatArray, Message, Segment, Task, Trajectory, Utterance

P = TypeVar("P")
Shown = str | tuple[Utterance, ...]
"""A demonstration: a completion, or an episode in which policy and environment alternate."""

if TYPE_CHECKING:
    from posttrain.policies import Policy
    from posttrain.training.packing import Example


@frozen
class SFT(Stage):
    """Supervised fine-tuning on the demonstrations of the tasks; only completions are trained."""

    objective: Objective
    reducer: Reducer
    batch: PositiveInt = 32
    """Demonstrations per optimizer step."""
    epochs: PositiveFloat = 1.0
    """Passes over the demonstrations; fractions are allowed."""
    max_steps: PositiveInt | None = None
    """Upper limit on the number of steps."""
    skip: NonNegativeInt = 0
    """Demonstrations at the front that are left out; those of held-out tasks are not counted."""
    limit: PositiveInt | None = None
    """Most demonstrations that are used, from the first that is not skipped; None takes all."""
    learner: Learning = Learning()
    """How the model is updated."""
    regularizers: Mapping[str, Penalty] = field(default_factory=dict)
    """By name, penalties that are added to the loss: KL from another model, entropy, ..."""
    turns: Literal["last", "all"] = "last"
    """Which turns of the assistant are trained in a conversation: the last one, which is the demonstration, or all. All
    need a chat template that leaves earlier turns as they are."""
    weights: Weights | None = None
    """Weights of demonstrations by domain, as the advantages of their tokens, for an objective that multiplies by them
    (``policy_gradient``); None gives each token 1."""
    best: Best | None = None
    """Keeps the weights of the step with the best validation; None keeps those of the last step."""
    role: str = "policy"
    """The model that is trained: the policy, or a model that later stages use, such as a teacher or a guide."""
    tasks: Tasks | None = None
    """Tasks of this stage; None takes the recipe's."""
    selection: Selection | None = None
    """Which tasks are imitated, chosen once with the models at the start of the stage; None takes all."""

    @model_validator(mode="after")
    def check_parts(self) -> Self:
        """Refuse penalties that need rewards, and objectives that need a critic."""
        for name, penalty in self.regularizers.items():
            if not penalty.acts_in_loss or penalty.start():
                why = "acts in the reward" if not penalty.acts_in_loss else "adapts to rewarded rollouts"
                raise PydanticCustomError("regularizers", f"'{name}' {why}, and an sft stage has none; leave it out")
        if OLD_VALUE in self.needs:
            raise PydanticCustomError("needs", "an sft stage has no critic to give values")
        if self.weights is not None and "zero_advantage" in self.objective.exceptions:
            why = "the objective '{objective}' has no use for weights; take policy_gradient, or leave them out"
            raise PydanticCustomError("weights", why, {"objective": self.objective.kind})
        return self

    @property
    def needs(self) -> frozenset[Signal]:
        """Signals that the objective and the regularizers read."""
        return self.objective.needs.union(*(penalty.needs for penalty in self.regularizers.values()))

    @property
    def roles(self) -> frozenset[str]:
        """The role that is trained, and those that it is compared with."""
        selecting = self.selection.roles if self.selection else frozenset()
        keeping = self.best.roles if self.best else frozenset()
        return frozenset({self.role}) | roles_in(self.needs) | selecting | keeping

    @property
    def further(self) -> Mapping[str, Tasks]:
        """The tasks of the validation."""
        return {VALIDATION: self.best.tasks} if self.best else {}

    def check_further(self, name: str, models: Models, tasks: Sequence[Task]) -> None:
        """Tasks of the validation must have a prompt that leaves room for an answer."""
        check_prompts(models["policy"], tasks, "the validation")

    @property
    def learns_from(self) -> frozenset[Given]:
        """Demonstrations, where the policy learns from them."""
        return frozenset({"demonstrations"} if self.role == "policy" else ())

    def given(self, policy: "Policy", task: Task) -> Sequence[Trajectory]:
        """The demonstrations and episodes of a task."""
        shown: list[Shown] = [*task.demonstrations, *task.episodes]
        return [demonstration(policy, task, text, turns=self.turns) for text in shown]

    def needed(self, models: Mapping[str, Model]) -> Sequence[Need]:
        """The needs of the objective, the regularizers and the selection."""
        parts = [*parts_of(self), ("selection", self.selection)]
        return [need for path, part in parts for need in needs_of(path, part, role=self.role)]

    def check(self, models: Models, tasks: Sequence[Task]) -> None:
        """Every demonstration must fit into the context of the model, which must be trained."""
        model = models.get(self.role)
        if model is not None:
            check_trained(model, self.role, f"the {self.kind} stage")
        if self.written("demonstrations"):
            check_prompts(models["policy"], tasks, f"the {self.kind} stage")
            return
        for task, text in self.pairs(tasks):
            policy = model or models["policy"]
            demonstration(policy, task, text, turns=self.turns)  # the model of the role may be copied only later
            if self.weights is not None:
                self.weights.of_domain(task.domain)

    def run(self, models: Models, context: StageContext) -> Models:
        """Train on the demonstrations in a seeded order that is new in every epoch."""
        from posttrain.training.learner import Loss

        pairs = self.pairs(context.tasks)
        own, columns = trained_in(self.needs), columns_in(self.needs)

        def examples(step: Step) -> "list[Example]":
            order = self.order(len(pairs), step.index, context.seed)
            step.record.metrics["epoch"] = (step.index + 1) * self.batch / len(pairs)
            key = context.seed, step.index
            shown = [
                demonstration(models[self.role], *pairs[i], *key, place, turns=self.turns)
                for place, i in enumerate(order)
            ]
            step.record.shown = list(enumerate(shown))
            weights = [None] * len(shown) if self.weights is None else self.weights.of(shown)
            chosen = [example_from(trajectory, own_T) for trajectory, own_T in zip(shown, weights, strict=True)]
            if not columns:
                return chosen
            with context.phase("signals"):
                return with_columns(chosen, columns, models, role=self.role, learning=self.learner)

        loss = Loss(
            per_token=combine(self.objective, self.regularizers, None),
            reducer=self.reducer,
            needs=own,
            others={role: models[role] for role in roles_in(own)},
            foresight=self.objective.foresight,
        )
        steps = self.total_steps(context.tasks)
        validation = (
            Validation(
                best=self.best, trained=self.role, models=models, context=context, known=dict(context.memory or {})
            )
            if self.best
            else None
        )
        models = fit_role(
            context,
            models,
            role=self.role,
            learning=self.learner,
            loss=loss,
            steps=steps,
            examples=examples,
            drawn=(self.batch, len(pairs)),
            after=validation.after if validation else None,
        )
        if validation is not None:
            validation.take_best()
        return models

    def total_steps(self, tasks: Sequence[Task]) -> int:
        """Number of steps of the epochs, at least one."""
        count = len(used_part(tasks, "tasks", self.skip, self.limit) if self._waits(tasks) else self.pairs(tasks))
        return steps_in(count, batch=self.batch, epochs=self.epochs, max_steps=self.max_steps)

    def pairs(self, tasks: Sequence[Task]) -> list[tuple[Task, Shown]]:
        """Every task with each of its demonstrations and episodes, of the part that is used."""
        pairs: list[tuple[Task, Shown]] = []
        for task in tasks:
            pairs += [(task, text) for text in task.demonstrations]
            pairs += [(task, episode) for episode in task.episodes]
        if not pairs:
            raise UserError(
                f"none of the {len(tasks)} tasks has a demonstration to imitate; give a column named completion, "
                "response, demonstration or solution, messages that end with the assistant, or leave the sft stage out"
            )
        return used_part(pairs, "demonstrations", self.skip, self.limit)

    def preview(self, models: Models, context: PreviewContext) -> list[str]:
        """The number of demonstrations and steps, and the first demonstration."""
        if self._waits(context.tasks):
            return [f"models write the demonstrations of up to {len(context.tasks)} tasks when the stage begins"]
        pairs = self.pairs(context.tasks)
        policy = models.get(self.role, models["policy"])
        examples = [demonstration(policy, task, text, turns=self.turns) for task, text in pairs[: self.batch]]
        tokens = sum(e.num_trained for e in examples) / len(examples)
        task, text = pairs[0]
        return [
            f"{len(pairs)} demonstrations, {self.total_steps(context.tasks)} steps of {self.batch}",
            f"{tokens:.1f} trained tokens per demonstration (mean of the first {len(examples)})",
            f"first prompt: {task.prompt!r}",
            f"first demonstration: {text if isinstance(text, str) else ''.join(part.text for part in text)!r}",
        ]

    def _waits(self, tasks: Sequence[Task]) -> bool:
        """Whether demonstrations are yet to be written."""
        return self.written("demonstrations") and not any(task.demonstrations or task.episodes for task in tasks)

    def order(self, count: int, step: int, seed: int) -> list[int]:
        """Indices of a step's demonstrations: consecutive entries of an endless sequence of seeded shuffles, or each
        demonstration with one probability for private updates.
        """
        if self.learner.privacy is not None:
            return independent(count, self.batch, step, seed)
        return shuffled(count, self.batch, step, seed)


def used_part(pairs: Sequence[P], what: str, skip: int, limit: int | None) -> list[P]:
    """The examples from the first that is not skipped, at most `limit`. Raises `UserError` if all are skipped."""
    used = list(pairs[skip:] if limit is None else pairs[skip : skip + limit])
    if not used:
        raise UserError(f"skip={skip} leaves none of the {len(pairs)} {what}; give a smaller skip, or more data")
    return used


def example_from(trajectory: Trajectory, weight_T: FloatArray | None = None) -> "Example":
    """A demonstration in the learner's form: the advantage of each trained token is its weight, or else 1."""
    from posttrain.training.packing import example_of

    ones_T = np.ones(trajectory.num_trained, np.float32)
    return example_of(trajectory, {ADVANTAGE: ones_T if weight_T is None else weight_T})


def demonstration(
    policy: "Policy", task: Task, shown: Shown, *key: int, turns: Literal["last", "all"] = "last"
) -> Trajectory:
    """The prompt, then a demonstration and its end token, which are trained. Draws of the model, of a flow for example,
    are a function of the key. Raises `UserError` if it exceeds the model's context.
    """
    own = policy.demonstration(task, shown, *key) if isinstance(shown, str) else None
    if own is not None:
        return own
    if turns == "all" and isinstance(shown, str) and not isinstance(task.prompt, str) and _goes_on(task.prompt):
        return conversation(policy, task, task.prompt, shown)
    utterances = (Utterance(actor="policy", text=shown),) if isinstance(shown, str) else shown
    opening = utterances[0].text if utterances[0].actor == "environment" else ""
    prompt = with_opening(task.prompt, opening)
    start = policy.prompt(replace(task, prompt=prompt))
    parts = episode_segments(policy, prompt, utterances[1:] if opening else utterances)
    _check_length(policy, task, len(start), sum(map(len, parts)))
    if not len(start):  # Nothing precedes the first token of a text without a prompt, so it cannot be learned.
        first = parts[0].token_ids
        start, parts[0] = replace(start, token_ids=first[:1]), replace(parts[0], token_ids=first[1:])
    return Trajectory(task=task, segments=(start, *parts), stop_reason="stop")


def conversation(policy: "Policy", task: Task, prompt: tuple[Message, ...], reply: str) -> Trajectory:
    """A conversation in which all turns of the assistant are trained. Raises `UserError` as `demonstration` does."""
    if task.images:
        raise TaskFault(task.key, f"task {task.key}: turns=all is for conversations without images; take turns=last")
    messages = (*prompt, Message(role="assistant", content=reply))
    ids, spans = policy.tokenizer.encode_conversation(messages)
    texts = [m["content"] for place, m in enumerate(messages) if m["role"] == "assistant" and place]
    first = spans[0][0]
    _check_length(policy, task, first, len(ids) - first)
    start = ids[:first]
    segments = [Segment(actor="prompt", token_ids=start, text=policy.tokenizer.decode(start))]
    before = first
    for turn, ((begin, end), text) in enumerate(zip(spans, texts, strict=True)):
        if begin > before:
            between = ids[before:begin]
            text_between = policy.tokenizer.decode(between)
            segments.append(Segment(actor="environment", token_ids=between, turn=turn, text=text_between))
        segments.append(Segment(actor="demonstration", token_ids=ids[begin:end], trained=True, turn=turn, text=text))
        before = end
    return Trajectory(task=task, segments=tuple(segments), stop_reason="stop")


def _goes_on(prompt: tuple[Message, ...]) -> bool:
    """Whether the assistant has answered before."""
    return any(message["role"] == "assistant" for message in prompt[1:])


def _check_length(policy: "Policy", task: Task, prompt: int, demonstration: int) -> None:
    """Raise `UserError` for a demonstration beyond the context."""
    if prompt + demonstration > policy.context:
        raise TaskFault(
            task.key,
            f"task {task.key}: prompt ({prompt} tokens) and demonstration ({demonstration}) together pass the "
            f"model's context of {policy.context} tokens; shorten or leave out the row, or raise "
            "models.policy.context if the model allows it",
        )


def episode_segments(
    policy: "Policy", prompt: str | tuple[Message, ...], utterances: Sequence[Utterance]
) -> list[Segment]:
    """The segments after the prompt: the policy's turns are trained, observations are not."""
    tokenizer = policy.tokenizer
    segments: list[Segment] = []
    for utterance in utterances:
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
