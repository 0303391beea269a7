"""Training on the preference pairs of a data set, shared by the stages `preference` and `reward_model`."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, Literal

import numpy as np
from pydantic import PositiveFloat, PositiveInt

from posttrain.component import nearest
from posttrain.components.reducers import Reducer
from posttrain.datasets.order import shuffled
from posttrain.datasets.values import finite
from posttrain.errors import UserError
from posttrain.signals import ADVANTAGE, Signal, columns_in, trained_in
from posttrain.stages import Models, PreviewContext, StageContext
from posttrain.stages.columns import with_columns
from posttrain.stages.fit import Step, fit_role, steps_in
from posttrain.stages.prompts import check_prompts
from posttrain.stages.sft import demonstration, used_part
from posttrain.training.settings import Learning
from posttrain.types import Fact, FloatArray, PerToken, Preference, Task, Tokens, Trajectory, Utterance

if TYPE_CHECKING:
    from posttrain.policies import Policy
    from posttrain.training.packing import Example


DRAWS: Final = "draws"
"""Name of random numbers among those of a pair."""
WEIGHT: Final = "weight"
"""Name of the weights of pairs among their numbers."""


@dataclass(frozen=True, kw_only=True)
class PairTraining:
    """How one role learns from pairs."""

    role: str
    per_token: Callable[[Tokens, Mapping[str, FloatArray]], PerToken]
    """The loss of each token, given the numbers of the step's pairs by name ([P])."""
    reducer: Reducer
    needs: frozenset[Signal]
    """Signals that the loss reads, from the trained role's own forward pass and from other models."""
    reads: frozenset[str] = frozenset()
    """Names of the numbers of each pair that the loss reads."""
    gives: frozenset[str] = frozenset()
    """Names of the numbers that written pairs have."""
    batch: PositiveInt
    """Pairs per step."""
    epochs: PositiveFloat
    max_steps: PositiveInt | None
    learning: Learning
    written: bool = False
    """Whether models write the pairs when the stage begins."""
    skip: int = 0
    """Pairs at the front that are left out."""
    limit: int | None = None
    """Most pairs that are used, from the first that is not skipped; None takes all."""
    draws: int = 0
    """Uniform numbers in [0, 1) that the loss draws for each pair, under the name `DRAWS` ([P, draws])."""
    whole_batch: bool = False
    """Whether the loss compares all pairs of a step, which are then one micro-batch."""
    per_task: bool = False
    """Whether the loss has the name `WEIGHT` for weights by which all pairs of a task weigh as much as one ([P]); their
    mean over all pairs is 1."""
    sides: "Callable[[Policy, Task, Preference], tuple[Trajectory, Trajectory]] | None" = None
    """Makes the two trajectories of a pair; None learns from the completions."""

    def shown(self, policy: "Policy", task: Task, preference: Preference, *key: int) -> tuple[Trajectory, Trajectory]:
        """The two trajectories of a pair; draws, of a flow for example, are a function of the key."""
        if self.sides is not None:
            return self.sides(policy, task, preference)
        return pair_trajectories(policy, task, preference, *key)

    def pairs(self, tasks: Sequence[Task]) -> list[tuple[Task, Preference]]:
        """The pairs that are used. Raises `UserError` when there is none."""
        return used_part(pairs_of(tasks), "pairs", self.skip, self.limit)

    def check(self, models: Models, tasks: Sequence[Task]) -> None:
        """Raise `UserError` for a pair that exceeds the context or has a completion without a trained token."""
        if self.written:
            if missing := sorted(self.reads - self.gives):
                raise UserError(
                    f"the loss reads {', '.join(missing)} of each pair, which the pairs of this selection lack; "
                    f"{nearest(missing[0], self.gives)}; take another rule of pairs, or a loss that does not read it"
                )
            check_prompts(models["policy"], tasks, "the tasks that pairs are written for")
            return
        policy = models.get(self.role, models["policy"])
        for index, (task, preference) in enumerate(self.pairs(tasks)):
            examples_of_pair(self.shown(policy, task, preference), index)
            for name in sorted(self.reads):
                number_of(task, preference, name)

    def total_steps(self, tasks: Sequence[Task]) -> int:
        """Number of steps of the epochs, at least one."""
        count = len(used_part(tasks, "tasks", self.skip, self.limit) if self._waits(tasks) else self.pairs(tasks))
        return steps_in(count, batch=self.batch, epochs=self.epochs, max_steps=self.max_steps)

    def run(self, models: Models, context: StageContext) -> Models:
        """Train on the pairs in a seeded order that is new in every epoch."""
        from posttrain.training.learner import Loss

        pairs = self.pairs(context.tasks)
        known = {name: np.array([number_of(*pair, name) for pair in pairs], np.float32) for name in sorted(self.reads)}
        known |= {WEIGHT: weights_of(pairs)} if self.per_task else {}
        numbers: dict[str, FloatArray] = {}

        def examples(step: Step) -> "list[Example]":
            places = shuffled(len(pairs), self.batch, step.index, context.seed)
            numbers.update({name: values[list(places)] for name, values in known.items()})
            if self.draws:
                rng = np.random.default_rng([context.seed, step.index])
                numbers[DRAWS] = rng.random((len(places), self.draws), np.float32)
            step.record.metrics["epoch"] = (step.index + 1) * self.batch / len(pairs)
            shown = [self.shown(models[self.role], *pairs[i], context.seed, step.index, i) for i in places]
            step.record.shown = [(place, trajectory) for place, pair in enumerate(shown) for trajectory in pair]
            with context.phase("signals"):
                plain = [e for place, pair in enumerate(shown) for e in examples_of_pair(pair, place)]
                return self.with_signals(plain, models)

        def per_token(tokens: Tokens) -> PerToken:
            return self.per_token(tokens, numbers)

        loss = Loss(
            per_token=per_token,
            reducer=self.reducer,
            needs=trained_in(self.needs),
            whole_groups=True,
            whole_batch=self.whole_batch,
        )
        steps = self.total_steps(context.tasks)
        return fit_role(
            context, models, role=self.role, learning=self.learning, loss=loss, steps=steps, examples=examples
        )

    def with_signals(self, examples: "Sequence[Example]", models: Models) -> "list[Example]":
        """The examples with signals of other models, and of the trained model before the step."""
        return with_columns(examples, columns_in(self.needs), models, role=self.role, learning=self.learning)

    def preview(self, models: Models, context: PreviewContext) -> list[str]:
        """The number of pairs and steps, and the first pair."""
        if self._waits(context.tasks):
            return [f"models write the pairs of up to {len(context.tasks)} tasks when the stage begins"]
        pairs, left_out = self.pairs(context.tasks), notes_on_pairs(context.tasks)
        policy = models[self.role]
        first = [
            e for i, pair in enumerate(pairs[: self.batch]) for e in examples_of_pair(self.shown(policy, *pair), i)
        ]
        tokens = sum(e.num_trained for e in first) / len(first)
        task, preference = pairs[0]
        return [
            f"{len(pairs)} pairs, {self.total_steps(context.tasks)} steps of {self.batch}",
            *left_out,
            f"{tokens:.1f} trained tokens per completion (mean of the first {len(first)})",
            f"first prompt: {task.prompt!r}",
            f"first chosen completion: {preference.chosen!r}",
            f"first rejected completion: {preference.rejected!r}",
        ]

    def _waits(self, tasks: Sequence[Task]) -> bool:
        """Whether pairs are yet to be written."""
        return self.written and not any(task.preferences for task in tasks)


def comparable(task: Task) -> list[Preference]:
    """The preferences of a task whose completions differ: of two equal ones, none can be better."""
    return [pair for pair in task.preferences if pair.chosen != pair.rejected or _cut(task, pair) is True]


def _cut(task: Task, pair: Preference) -> object:
    """True where the rejected completion has no end, "both" where neither has one."""
    return pair.fields.get("cut", task.fields.get("cut"))


def notes_on_pairs(tasks: Sequence[Task]) -> list[str]:
    """How many pairs are left out, if any are."""
    given = sum(len(task.preferences) for task in tasks)
    equal = given - sum(len(comparable(task)) for task in tasks)
    return [f"left out {equal} of {given} pairs, whose two completions are equal"] if equal else []


def pairs_of(tasks: Sequence[Task]) -> list[tuple[Task, Preference]]:
    """Every task with each of its comparable preferences. Raises `UserError` when there is none."""
    pairs = [(task, preference) for task in tasks for preference in comparable(task)]
    if pairs:
        return pairs
    if any(task.preferences for task in tasks):
        raise UserError(
            f"the two completions of each pair of the {len(tasks)} tasks are equal, so that neither is the better "
            "one; give pairs of which the chosen completion differs from the rejected one"
        )
    raise UserError(
        f"none of the {len(tasks)} tasks has a preference to learn from; give columns named chosen and rejected, "
        "or tasks=worked_solutions for generated pairs"
    )


def weights_of(pairs: Sequence[tuple[Task, Preference]]) -> FloatArray:
    """[P] weights whose sum is the same for all tasks, and whose mean is 1."""
    counts = Counter(task.key for task, _ in pairs)
    weight_P = np.array([1.0 / counts[task.key] for task, _ in pairs])
    return np.asarray(weight_P / weight_P.mean(), np.float32)


def number_of(task: Task, preference: Preference, name: str) -> float:
    """A number of a pair: its own, or the column of the task's row. Raises `UserError` where there is none."""
    fields = {**task.fields, **preference.about()}
    number = finite(fields.get(name))
    if number is not None:
        return number
    found = f"'{name}' is {fields[name]!r}" if name in fields else f"there is none; {nearest(name, fields)}"
    raise UserError(
        f"task {task.key}: the loss reads the number '{name}' of each pair, and {found}; give each row a column "
        f"'{name}' with a finite number, or take a loss that does not read it"
    )


@dataclass(frozen=True, kw_only=True)
class Side(Fact):
    """Which completion of a pair it is, and what made the pair."""

    side: Literal["chosen", "rejected"]
    rule: str | None = None
    """The rule that made the pair of rollouts; None for pairs of the data."""
    margin: float | None = None
    """How much better the chosen one is, in the unit of the rule or of the data."""


def pair_trajectories(policy: "Policy", task: Task, preference: Preference, *key: int) -> tuple[Trajectory, Trajectory]:
    """The chosen and the rejected completion, samples 0 and 1. Raises `UserError` for one without a trained token.

    Both have the same draws, a function of the key.

    A rejected completion that is `cut` has no end token: what is learned is that this prefix is worse, not its end.
    With `cut` "both", neither has one: both are prefixes.
    """

    def one(sample: int, side: Literal["chosen", "rejected"], text: str) -> Trajectory:
        of_pair = _cut(task, preference)
        cut = of_pair == "both" or (side == "rejected" and of_pair is True)
        shown = (Utterance(actor="policy", text=text, ended=False),) if cut else text
        trajectory = demonstration(policy, task, shown, *key)
        if not trajectory.num_trained:
            raise UserError(
                f"task {task.key}: the {side} completion has no token that can be learned; give the row a prompt, or "
                "leave it out"
            )
        fact = Side(side=side, rule=None if rule is None else str(rule), margin=margin)
        return replace(trajectory, sample=sample, facts=(*trajectory.facts, fact))

    rule, given = preference.fields.get("rule"), preference.fields.get("margin", task.fields.get("margin"))
    margin = finite(given)
    return one(0, "chosen", preference.chosen), one(1, "rejected", preference.rejected)


def examples_of_pair(pair: tuple[Trajectory, Trajectory], index: int) -> "list[Example]":
    """The chosen and the rejected completion as one group, with the advantages 1 and -1."""
    from posttrain.training.packing import example_of

    return [
        example_of(t, {ADVANTAGE: np.full(t.num_trained, advantage, np.float32)}, group=index)
        for t, advantage in zip(pair, (1.0, -1.0), strict=True)
    ]


def pair_examples(policy: "Policy", task: Task, preference: Preference, index: int) -> "list[Example]":
    """The examples of a pair of completions."""
    return examples_of_pair(pair_trajectories(policy, task, preference), index)
