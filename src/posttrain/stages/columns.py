"""Computes the signals that a stage's components need: one forward pass a model."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from posttrain.signals import Signal, roles_in
from posttrain.stages.context import Models
from posttrain.training.settings import Learning
from posttrain.types import FloatArray

if TYPE_CHECKING:
    from posttrain.policies import Policy
    from posttrain.training.packing import Example


def told_by_models(
    examples: "Sequence[Example]",
    needs: frozenset[Signal],
    models: Models,
    *,
    role: str,
    critic: str = "critic",
    max_tokens: "Callable[[Policy], int]",
    temperature: float = 1.0,
) -> list[dict[Signal, FloatArray]]:
    """For each example, [T] columns: what the models say of its trained tokens before they are learned from.

    Every model passes over the examples once. One that the learning model is compared with does so beside it, and says
    there what else is asked of it. `role` is what learns, `critic` gives its values, and `max_tokens` bounds a pass of
    a model; `temperature` is that of the distribution which the tokens were drawn from.
    """
    from posttrain.training.learner import evaluate_examples

    asked: dict[str, set[Signal]] = {}
    for need in needs:
        asked.setdefault(need.asked(role, critic), set()).add(need)
    beside = roles_in(need for need in needs if need.compares)
    found: list[dict[Signal, FloatArray]] = [{} for _ in examples]
    for name in sorted(asked.keys() - (beside - {role})):
        others = {other: models[other] for other in beside} if name == role else {}
        called = {need: need.itself for need in asked[name]}
        called |= {need: need for other in others if other != name for need in asked.get(other, ())}
        results = evaluate_examples(
            models[name],
            examples,
            frozenset(called.values()),
            others=others,
            max_tokens=max_tokens(models[name]),
            temperature=temperature,
        )
        for own, result in zip(found, results, strict=True):
            own.update((need, result[itself]) for need, itself in called.items())
    return found


def with_columns(
    examples: "Sequence[Example]", needs: frozenset[Signal], models: Models, *, role: str, learning: Learning
) -> "list[Example]":
    """The examples with what other models, or the one in the `role` before the step, say of their tokens."""

    def max_tokens(policy: "Policy") -> int:
        return learning.tokens_at_a_time(next(policy.parameters()).device.type, policy.kept_bytes)

    found = told_by_models(examples, needs, models, role=role, max_tokens=max_tokens)
    return [replace(example, columns={**example.columns, **own}) for example, own in zip(examples, found, strict=True)]
