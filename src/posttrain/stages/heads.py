"""Heads: several numbers of a text from one model, learned from labels, or from the scores of another reward model.

Sources: EduAlign, arXiv:2507.20335 (a score for each of three dimensions; the losses are of this package), and
"Reward-Robust RLHF", arXiv:2409.15360 (an ensemble of heads on one trunk, each with a mean and a standard deviation,
trained after a reward model of pairs). With outputs s of a reward head at the last token of a text, target y of a head
and weight w, which is 0 where a label is missing:

    squared     w (s - y)^2                                     one output for each head
    gaussian    w ((y - m)^2 / (2 v) + log(v) / 2)              m the first half of the outputs, v = exp(2 s) + floor^2
    levels      w times the cross-entropy of the level y        ``levels`` outputs for each head

The loss of a step is the sum over all texts and heads over the sum of the weights: a missing label has no gradient, and
a step without labels has the loss 0. With ``target_role`` the targets of all heads are the scores of that model,
standardized over the texts of the stage, so that all heads have one scale. With `bagged` each head has its own weights
of the texts, drawn from Poisson(1), so that heads differ.

Differs: squared errors of draws from a head's Gaussian are smallest at a standard deviation of 0, whatever the data;
the likelihood is used instead. It is not bounded where targets are met exactly, hence the `floor`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

import numpy as np
from pydantic import Field, PositiveFloat, PositiveInt, model_validator
from pydantic_core import PydanticCustomError

from posttrain.component import frozen, nearest
from posttrain.components.reducers import Reducer
from posttrain.components.tasks import Tasks
from posttrain.datasets.order import shuffled
from posttrain.datasets.values import finite
from posttrain.errors import UserError
from posttrain.models import Model
from posttrain.signals import SCORE, SCORES
from posttrain.stages import Models, PreviewContext, Stage, StageContext
from posttrain.stages.fit import Step, fit_role, steps_in
from posttrain.stages.needs import Need
from posttrain.stages.sft import demonstration
from posttrain.training.settings import Learning
from posttrain.types import FloatArray, PerToken, Task, Tokens

if TYPE_CHECKING:
    import torch

    from posttrain.policies import Policy
    from posttrain.training.packing import Example

Kind = Literal["squared", "gaussian", "levels"]
Text = tuple[Task, str]


@frozen
class HeadsTraining(Stage):
    """Training of a model with a reward head of several outputs."""

    reducer: Reducer
    labels: tuple[str, ...]
    """Columns with a number for each text, one head for each; a row may lack some. Empty with a `target_role`."""
    target_role: str | None = None
    """The reward model whose scores are the targets; None takes the labels."""
    loss: Kind = "squared"
    """Of each head."""
    levels: Annotated[int, Field(ge=2, le=100)] = 3
    """For ``loss: levels``: labels are whole numbers from 0 to this less 1."""
    floor: PositiveFloat = 0.05
    """For ``loss: gaussian``: smallest standard deviation."""
    bagged: bool = False
    """Whether each head has random weights of the texts of its own."""
    role: str = "reward"
    """The model that learns; it needs ``head: reward``, ``trained: true``, and ``outputs`` for its heads."""
    batch: PositiveInt = 32
    """Texts per step."""
    epochs: PositiveFloat = 1.0
    """Passes over the texts; fractions are allowed."""
    max_steps: PositiveInt | None = None
    """Upper limit on the number of steps."""
    learner: Learning = Learning()
    """How the model is updated."""
    tasks: Tasks | None = None
    """Tasks of this stage; None takes the recipe's."""

    @model_validator(mode="after")
    def check_targets(self) -> Self:
        """Require targets of one kind."""
        if bool(self.labels) == (self.target_role is not None):
            raise PydanticCustomError("labels", "targets are either labels or the scores of target_role: give one")
        if len(set(self.labels)) < len(self.labels):
            raise PydanticCustomError("labels", "two heads have the same label; name each column once")
        if self.target_role is not None and self.loss == "levels":
            raise PydanticCustomError("loss", "scores of a model have no levels; take loss=squared or loss=gaussian")
        return self

    @property
    def roles(self) -> frozenset[str]:
        """The model, and the one that gives its targets."""
        return frozenset({self.role}) | (frozenset({self.target_role}) if self.target_role else frozenset())

    def needed(self, models: Mapping[str, Model]) -> Sequence[Need]:
        """The outputs of the model, and the scores of the one that gives its targets."""
        own = Need(signal=SCORES, role=self.role, path="role", setting="role")
        if self.target_role is None:
            return [own]
        return [own, Need(signal=SCORE, role=self.target_role, path="target_role", setting="target_role")]

    def check(self, models: Models, tasks: Sequence[Task]) -> None:
        """There must be texts with labels that fit into the context."""
        examples_of(models.get(self.role, models["policy"]), self._texts(tasks))

    def total_steps(self, tasks: Sequence[Task]) -> int:
        """Number of steps of the epochs, at least one."""
        count = len(self._texts(tasks))
        return steps_in(count, batch=self.batch, epochs=self.epochs, max_steps=self.max_steps)

    def run(self, models: Models, context: StageContext) -> Models:
        """Train on the texts in a seeded order that is new in every epoch."""
        from posttrain.training.learner import Loss

        texts = self._texts(context.tasks)
        policy = models[self.role]
        whole = examples_of(policy, texts)
        heads = self._heads(context.model_settings[self.role].outputs)
        target_MK = self._targets(texts, whole, models, heads)
        weight_MK = np.isfinite(target_MK).astype(np.float32)
        if self.bagged:
            weight_MK *= np.random.default_rng(context.seed).poisson(1.0, target_MK.shape)
        now: dict[str, FloatArray] = {}

        def examples(step: Step) -> "list[Example]":
            places = list(shuffled(len(texts), self.batch, step.index, context.seed))
            now["target"], now["weight"] = np.nan_to_num(target_MK[places]), weight_MK[places]
            step.record.metrics["epoch"] = (step.index + 1) * self.batch / len(texts)
            return [replace(whole[i], group=place) for place, i in enumerate(places)]

        def per_token(tokens: Tokens) -> PerToken:
            return self._loss(tokens, now["target"], now["weight"])

        loss = Loss(per_token=per_token, reducer=self.reducer, needs=frozenset({SCORES}))
        steps = self.total_steps(context.tasks)
        return fit_role(
            context, models, role=self.role, learning=self.learner, loss=loss, steps=steps, examples=examples
        )

    def preview(self, models: Models, context: PreviewContext) -> list[str]:
        """The number of texts, of labels by head, and the first text."""
        texts = self._texts(context.tasks)
        target_MK = np.array([[_label(task, name) for name in self.labels] for task, _ in texts])
        known = ", ".join(
            f"{int(n)} of {name}" for n, name in zip(np.isfinite(target_MK).sum(0), self.labels, strict=True)
        )
        targets = f"labels: {known}" if self.labels else f"targets: the scores of the role '{self.target_role}'"
        return [f"{len(texts)} texts, {self.total_steps(context.tasks)} steps of {self.batch}; {targets}", texts[0][1]]

    def _heads(self, outputs: int) -> int:
        """Number of heads. Raises `UserError` for a model with another number of outputs."""
        each = {"squared": 1, "gaussian": 2, "levels": self.levels}[self.loss]
        if self.labels and outputs != each * len(self.labels):
            raise UserError(
                f"models.{self.role}.outputs is {outputs}, and loss={self.loss} of {len(self.labels)} labels takes "
                f"{each * len(self.labels)}; set it to that"
            )
        if outputs % each:
            raise UserError(
                f"models.{self.role}.outputs is {outputs}, and loss={self.loss} takes {each} for each head; give a "
                "multiple of that"
            )
        return outputs // each

    def _texts(self, tasks: Sequence[Task]) -> list[Text]:
        """The texts that are learned from. Raises `UserError` where there is none, or a label is off its scale."""
        if self.target_role is not None:
            found = [(task, text) for task in tasks for text in texts_of(task)]
        else:
            found = [(task, task.demonstrations[0]) for task in tasks if task.demonstrations]
            read = [(task, text, np.isfinite(self._read(task))) for task, text in found]
            self._check_labels([known for _, _, known in read], tasks)
            found = [(task, text) for task, text, known in read if any(known)]
        if found:
            return found
        named = f"a completion and a number in {' or '.join(self.labels)}" if self.labels else "a completion or a pair"
        fields = sorted({name for task in tasks for name in task.fields})
        hint = f"; {nearest(self.labels[0], fields)}" if self.labels else ""
        raise UserError(f"none of the {len(tasks)} tasks has {named} to learn from{hint}; give columns of these names")

    def _check_labels(self, known: Sequence[Any], tasks: Sequence[Task]) -> None:
        """Raise `UserError` for a label that no task has, where others are there: its head would learn nothing."""
        there = np.any(known, axis=0) if known else np.zeros(len(self.labels), bool)
        if any(there) and not all(there):
            name = self.labels[int(np.argmin(there))]
            fields = sorted({field for task in tasks for field in task.fields} - set(self.labels))
            raise UserError(
                f"none of the {len(tasks)} tasks has a number in '{name}', so that its head would learn nothing; "
                f"{nearest(name, fields)}; give the column, or leave the label out of labels"
            )

    def _read(self, task: Task) -> list[float]:
        """The labels of a task, NaN where it has none. Raises `UserError` for one that is no number, or no level."""
        found = [_label(task, name) for name in self.labels]
        for name, value in zip(self.labels, found, strict=True):
            if self.loss == "levels" and np.isfinite(value) and value not in range(self.levels):
                raise UserError(
                    f"task {task.key}: {name} is {value:g}, and levels are whole numbers from 0 to {self.levels - 1}; "
                    "change the label, or levels"
                )
        return found

    def _targets(self, texts: Sequence[Text], whole: "Sequence[Example]", models: Models, heads: int) -> FloatArray:
        """[M, K] target of each head for each text, NaN where there is none."""
        if self.target_role is None:
            return np.array([self._read(task) for task, _ in texts], np.float32)
        from posttrain.training.learner import evaluate_examples

        teacher = models[self.target_role]
        most = self.learner.tokens_for(teacher)
        found = evaluate_examples(teacher, whole, frozenset({SCORE}), max_tokens=most)
        score_M = np.array([own[SCORE][-1] for own in found], np.float64)
        score_M = (score_M - score_M.mean()) / max(float(score_M.std()), 1e-6)
        return np.tile(score_M[:, None], (1, heads)).astype(np.float32)

    def _loss(self, tokens: Tokens, target_GK: FloatArray, weight_GK: FloatArray) -> PerToken:
        """[T] for each text the sum of its heads' losses, times texts over weights of the whole step."""
        import torch

        score_TO = tokens[SCORES]
        target_TK, weight_TK = (
            torch.as_tensor(x_GK).to(score_TO.device, score_TO.dtype)[tokens.group_N[tokens.sequence_T]]
            for x_GK in (target_GK, weight_GK)
        )
        loss_TK = self.of_heads(score_TO, target_TK)
        scale = len(weight_GK) / max(float(weight_GK.sum()), 1.0)
        names = self.labels or tuple(str(k) for k in range(loss_TK.shape[1]))
        metrics = {f"loss/{name}": loss_TK[weight_TK[:, k] > 0, k].detach() for k, name in enumerate(names)}
        return PerToken(loss_T=scale * (weight_TK * loss_TK).sum(1), metrics=metrics)

    def of_heads(self, score_TO: "torch.Tensor", target_TK: "torch.Tensor") -> "torch.Tensor":
        """[T, K] loss of each head, of outputs [T, O] and targets [T, K]."""
        import torch

        heads = target_TK.shape[1]
        if self.loss == "squared":
            return (score_TO - target_TK).square()
        if self.loss == "gaussian":
            variance_TK = (2 * score_TO[:, heads:]).exp() + self.floor**2
            return (target_TK - score_TO[:, :heads]).square() / (2 * variance_TK) + variance_TK.log() / 2
        logp_TKL = score_TO.reshape(len(score_TO), heads, self.levels).log_softmax(-1)
        found_TK: torch.Tensor = -logp_TKL.gather(-1, target_TK.to(torch.int64)[..., None])[..., 0]
        return found_TK


def texts_of(task: Task) -> list[str]:
    """Every completion that comes with a task, each once."""
    pairs = [text for pair in task.preferences for text in (pair.chosen, pair.rejected)]
    return list(dict.fromkeys([*pairs, *task.demonstrations, *(rated.completion for rated in task.rated)]))


def examples_of(policy: "Policy", texts: Sequence[Text]) -> "list[Example]":
    """The texts, of which only the last token is trained. Raises `UserError` for one that exceeds the context."""
    from posttrain.training.packing import example_of

    made = [example_of(demonstration(policy, task, text), {}) for task, text in texts]
    return [replace(e, positions=e.positions[-1:], turn_T=e.turn_T[-1:]) for e in made]


def _label(task: Task, name: str) -> float:
    """A label of a task, NaN where it has none. Raises `UserError` for one that is no number."""
    value = task.fields.get(name)
    if value is None:
        return float("nan")
    number = finite(value)
    if number is not None:
        return number
    raise UserError(f"task {task.key}: {name} is {value!r:.60}; a label is a number, or left out")
