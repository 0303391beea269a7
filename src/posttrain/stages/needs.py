"""What declared needs mean for a stage: which signals the trained model gives by itself, and which roles are asked."""

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from posttrain.stages import Models
from posttrain.training.settings import Learning
from posttrain.types import DIVERGENCES, FloatArray

if TYPE_CHECKING:
    from posttrain.training.packing import Example

OF_THE_FORWARD_PASS: Final = frozenset({"entropy", "logit", "value", "noise", "velocity"})
_OF_OTHERS: Final = (*DIVERGENCES, "_logp", "_entropy", "_kl", "_velocity", "_score")


def of_the_forward_pass(needs: frozenset[str]) -> frozenset[str]:
    """Signals that the trained model gives while it is trained; all others are columns, computed before."""
    return frozenset(need for need in needs if need in OF_THE_FORWARD_PASS or need.endswith(DIVERGENCES))


def compared_roles(needs: frozenset[str]) -> frozenset[str]:
    """The roles of other models that signals are of, or from."""
    ends = {need: next((end for end in _OF_OTHERS if need.endswith(end)), None) for need in needs}
    return frozenset(need.removesuffix(end) for need, end in ends.items() if end is not None) - {"old"}


def with_columns(
    examples: "Sequence[Example]", needs: frozenset[str], models: Models, *, role: str, learning: Learning
) -> "list[Example]":
    """The examples with what other models, or the one in the `role` before the step, say of their tokens
    (``<other>_logp``, ``old_logp``, ...).
    """
    from posttrain.training.learner import evaluate_examples

    columns: list[dict[str, FloatArray]] = [dict(example.columns) for example in examples]
    for need in sorted(needs):
        asked, _, name = need.rpartition("_")
        other = models[role if asked == "old" else asked]
        size = learning.tokens_at_a_time(next(other.parameters()).device.type, other.kept_bytes)
        found = evaluate_examples(other, examples, frozenset({name}), max_tokens=size)
        for own, signals in zip(columns, found, strict=True):
            own[need] = signals[name]
    return [replace(example, columns=own) for example, own in zip(examples, columns, strict=True)]
