"""The slope of a validation utility in the share of imitation, by three further backward passes."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

    from posttrain.training.learner import Learner, Loss
    from posttrain.training.packing import Example

Part = tuple["Sequence[Example]", "Loss"]
"""Examples, and the loss of them."""


def gradient_difference(learner: "Learner", rollouts: Part, experts: Part, progress: float) -> "list[Tensor]":
    """Gradient of the imitation loss minus that of the reinforcement loss, at the weights before the update."""
    first, second = (learner.gradient(examples, loss, progress=progress) for examples, loss in (experts, rollouts))
    return [a - b for a, b in zip(first, second, strict=True)]


def slope(learner: "Learner", difference: "Sequence[Tensor]", validation: Part, progress: float) -> float:
    """The inner product of that difference with the gradient of the validation loss, at the weights after the update:
    how fast one more unit of the share would lower that loss, per unit of the learning rate.
    """
    examples, loss = validation
    found = learner.gradient(examples, loss, progress=progress)
    return float(sum(float((a * b).sum()) for a, b in zip(found, difference, strict=True)))
