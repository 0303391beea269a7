"""Update rules, from torch. A member says which parameters torch's optimizer gets and with which settings."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from posttrain.component import Component

if TYPE_CHECKING:
    import torch


class Optimizer(Component):
    """Makes torch optimizers for named parameters; every parameter belongs to exactly one of them."""

    def build(self, parameters: "Mapping[str, torch.nn.Parameter]") -> "list[torch.optim.Optimizer]":
        """Optimizers that together update all parameters. Each group's ``lr`` is the peak; schedules scale it."""
        raise NotImplementedError
