"""Update rules, from torch. A member says which parameters an optimizer gets and with which settings."""

from collections.abc import Mapping, MutableMapping
from typing import TYPE_CHECKING, Any, Protocol

from posttrain.component import Component

if TYPE_CHECKING:
    import torch


class Updates(Protocol):
    """What the learner asks of an optimizer; every torch.optim.Optimizer has it."""

    param_groups: list[dict[str, Any]]
    """Of each: ``params``, ``lr`` and other settings."""
    defaults: dict[str, Any]

    @property
    def state(self) -> MutableMapping[Any, Any]:
        """What it keeps for each parameter, by name."""
        ...

    def step(self) -> Any:
        """Update the parameters from their gradients."""
        ...

    def zero_grad(self) -> None:
        """Forget the gradients."""
        ...


class Optimizer(Component):
    """Makes optimizers for named parameters; every parameter belongs to exactly one of them."""

    def build(self, parameters: "Mapping[str, torch.nn.Parameter]") -> list[Updates]:
        """Optimizers that together update all parameters. Each group's ``lr`` is the peak; schedules scale it."""
        raise NotImplementedError
