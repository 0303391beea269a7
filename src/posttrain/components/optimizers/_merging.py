"""Steps of an optimizer, merged with a fixed change of the weights."""

import zlib
from collections.abc import Mapping, MutableMapping
from typing import Any

import torch
from torch import Tensor, nn

from posttrain.components.optimizers import Updates
from posttrain.errors import UserError


class MergingUpdates:
    """The updates of another optimizer, sparse, with a share of a change added to each."""

    def __init__(
        self,
        inner: Updates,
        parameters: Mapping[str, nn.Parameter],
        tau: Mapping[str, Tensor],
        *,
        keep: float,
        alpha: float,
    ) -> None:
        """`tau` is the change of each parameter, already sparse."""
        self.inner, self.parameters, self.tau = inner, parameters, tau
        self.keep, self.alpha = keep, alpha

    @property
    def param_groups(self) -> list[dict[str, Any]]:
        """Those of the other optimizer."""
        return self.inner.param_groups

    @property
    def defaults(self) -> dict[str, Any]:
        """Those of the other optimizer."""
        return self.inner.defaults

    @property
    def state(self) -> MutableMapping[Any, Any]:
        """That of the other optimizer: draws need none, since they are keyed by its count of steps."""
        return self.inner.state

    def zero_grad(self) -> None:
        """Drop the gradients."""
        self.inner.zero_grad()

    @torch.no_grad()
    def step(self) -> None:
        """Update every parameter that has a gradient."""
        trained = {name: p for name, p in self.parameters.items() if p.grad is not None}
        before = {name: p.detach().clone() for name, p in trained.items()}
        self.inner.step()
        if self.keep == 1.0 and self.alpha == 0.0:
            return
        for name, parameter in trained.items():
            count = int(self.state[parameter]["step"])
            delta = sparse(parameter - before[name], self.keep, name, count)
            parameter.copy_(before[name].add_(delta, alpha=1.0 - self.alpha).add_(self.tau[name], alpha=self.alpha))


def change(
    parameters: Mapping[str, nn.Parameter], reference: Mapping[str, Tensor], base: Mapping[str, Tensor], keep: float
) -> dict[str, Tensor]:
    """Sparse reference - base of every parameter, in [-1, 1]. Raises `UserError` for other names or shapes."""
    found = {}
    for name, parameter in parameters.items():
        shapes = [tuple(weights[name].shape) if name in weights else None for weights in (reference, base)]
        if shapes != [tuple(parameter.shape)] * 2:
            raise UserError(
                f"the online_merging optimizer needs models of one shape; '{name}' has {tuple(parameter.shape)} in the "
                f"policy, {shapes[0]} in the reference and {shapes[1]} in the base. Adapters are not merged: leave "
                "lora out, and give the base that the policy was fine-tuned from"
            )
        tau = (reference[name].detach() - base[name].detach()).to(parameter.dtype)
        found[name] = sparse(tau, keep, name, 0).clamp_(-1.0, 1.0)
    return found


def sparse(values: Tensor, keep: float, name: str, step: int) -> Tensor:
    """The values with a random share of the entries, divided by that share; the draw is a function of name and step."""
    if keep == 1.0:
        return values
    generator = torch.Generator().manual_seed(zlib.crc32(name.encode()) * 1_000_003 + step)
    kept = torch.rand(values.shape, generator=generator) < keep
    return values * (kept.to(values.device, values.dtype) / keep)
