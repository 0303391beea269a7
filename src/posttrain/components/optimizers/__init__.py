"""Update rules, from torch. A member assigns parameters and settings to optimizers."""

from collections.abc import Mapping, MutableMapping
from typing import TYPE_CHECKING, Any, Protocol

from posttrain.component import Component

if TYPE_CHECKING:
    import torch

    Weights = Mapping[str, torch.Tensor]
    """Parameters of a model by name."""


class Updates(Protocol):
    """The interface of an optimizer that the learner uses; every torch.optim.Optimizer has it."""

    param_groups: list[dict[str, Any]]
    """Of each: ``params``, ``lr`` and other settings."""
    defaults: dict[str, Any]

    @property
    def state(self) -> MutableMapping[Any, Any]:
        """State of each parameter."""
        ...

    def step(self) -> Any:
        """Update the parameters from their gradients."""
        ...

    def zero_grad(self) -> None:
        """Drop the gradients."""
        ...


class Optimizer(Component):
    """Makes optimizers for named parameters; every parameter belongs to exactly one of them."""

    @property
    def roles(self) -> frozenset[str]:
        """Roles whose weights it reads when it is built."""
        return frozenset()

    def build(
        self, parameters: "Mapping[str, torch.nn.Parameter]", others: "Mapping[str, Weights] | None" = None
    ) -> list[Updates]:
        """Optimizers that together update all parameters. Each group's ``lr`` is the peak; schedules scale it.

        `others` are the parameters of the models of `roles`, by role and name.
        """
        raise NotImplementedError
