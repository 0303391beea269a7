"""AdamW by torch's function for it, without torch's class: to make or call one of its optimizers imports torch's
compiler, which takes a second and 70 MB.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.adamw import adamw


class AdamWUpdates:
    """Updates and state of torch.optim.AdamW, bitwise equal and with the same names (tested against it)."""

    def __init__(self, groups: Sequence[Mapping[str, Any]], *, fused: bool, **shared: Any) -> None:
        """`groups` have ``params`` and settings of their own, `shared` are those of all: lr, betas, eps, weight_decay.

        `fused` is one pass over the memory, where torch has it.
        """
        self.defaults = {"fused": fused}
        self.param_groups = [{**shared, **group} for group in groups]
        self.state: defaultdict[nn.Parameter, dict[str, Tensor]] = defaultdict(dict)

    def zero_grad(self) -> None:
        """Drop the gradients."""
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.grad = None

    @torch.no_grad()
    def step(self) -> None:
        """Update every parameter that has a gradient."""
        for group in self.param_groups:
            trained = [p for p in group["params"] if p.grad is not None]
            states = [self._state(p) for p in trained]
            beta1, beta2 = group["betas"]
            adamw(
                trained,
                [p.grad for p in trained],
                [state["exp_avg"] for state in states],
                [state["exp_avg_sq"] for state in states],
                [],
                [state["step"] for state in states],
                fused=self.defaults["fused"],
                amsgrad=False,
                beta1=beta1,
                beta2=beta2,
                lr=group["lr"],
                weight_decay=group["weight_decay"],
                eps=group["eps"],
                maximize=False,
            )

    def _state(self, parameter: nn.Parameter) -> dict[str, Tensor]:
        state = self.state[parameter]
        if not state:
            state["step"] = torch.zeros((), device=parameter.device if self.defaults["fused"] else "cpu")
            state["exp_avg"], state["exp_avg_sq"] = torch.zeros_like(parameter), torch.zeros_like(parameter)
        return state
