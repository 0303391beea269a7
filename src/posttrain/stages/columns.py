"""Computes the signals that a stage's components need, in one forward pass per model."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from posttrain.signals import Signal, roles_in
from posttrain.stages.context import Models
from posttrain.training.settings import Learning
from posttrain.types import FloatArray

if TYPE_CHECKING:
    from posttrain.policies import Policy
    from posttrain.training.learner import Workers
    from posttrain.training.packing import Example


def signals_of_models(
    examples: "Sequence[Example]",
    needs: frozenset[Signal],
    models: Models,
    *,
    role: str,
    critic: str = "critic",
    max_tokens: "Callable[[Policy], int]",
    temperature: float = 1.0,
    workers: "Workers | None" = None,
) -> list[dict[Signal, FloatArray]]:
    """For each example, [T] signals of its trained tokens, computed before they are learned from.

    Every model does one forward pass over the examples. A model that the learning model is compared with does its pass
    together with it, and gives its other signals in that pass. `role` learns, `critic` gives its values, and
    `max_tokens` bounds a pass of a model. `temperature` is that of the distribution that the tokens were drawn from.
    """
    from posttrain.training.learner import InProcess, evaluate_examples

    needs_by_role: dict[str, set[Signal]] = {}
    for need in needs:
        needs_by_role.setdefault(need.computed_by(role, critic), set()).add(need)
    compared = roles_in(need for need in needs if need.compares)
    workers = workers or InProcess()

    def of(name: str) -> list[dict[Signal, FloatArray]]:
        others = {other: models[other] for other in compared} if name == role else {}
        requested = {need: need.local for need in needs_by_role[name]}
        requested |= {need: need for other in others if other != name for need in needs_by_role.get(other, ())}
        results = evaluate_examples(
            models[name],
            examples,
            frozenset(requested.values()),
            others=others,
            max_tokens=max_tokens(models[name]),
            temperature=temperature,
            workers=workers,
        )
        return [{need: result[itself] for need, itself in requested.items()} for result in results]

    signals: list[dict[Signal, FloatArray]] = [{} for _ in examples]
    for found in workers.together([partial(of, name) for name in sorted(needs_by_role.keys() - (compared - {role}))]):
        for own, more in zip(signals, found, strict=True):
            own.update(more)
    return signals


def with_columns(
    examples: "Sequence[Example]", needs: frozenset[Signal], models: Models, *, role: str, learning: Learning
) -> "list[Example]":
    """The examples with signals of other models, and of the model in the `role` before the step."""

    def max_tokens(policy: "Policy") -> int:
        return learning.tokens_for(policy)

    signals = signals_of_models(examples, needs, models, role=role, max_tokens=max_tokens)
    return [
        replace(example, columns={**example.columns, **own}) for example, own in zip(examples, signals, strict=True)
    ]
