"""Float32 master copies of half-precision weights.

An update of a weight is often smaller than the distance to the next bfloat16 number, and would be lost. A master
accumulates it until it changes the rounded weight (Micikevicius et al. 2018, arXiv:1710.03740, section 3.1). Gradients
of micro-batches are accumulated in float32 too. Weights of full precision are their own masters.
"""

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Final

import torch
from torch import Tensor, nn

from posttrain.policies.vocabulary import keep_spare, rounded_once

HALF: Final = (torch.bfloat16, torch.float16)


class Masters:
    """The tensors that the optimizer updates, by name: the weights, or their masters."""

    def __init__(self, weights: Mapping[str, nn.Parameter], *, kept: bool) -> None:
        self._weights = weights
        self.parameters: dict[str, nn.Parameter] = {
            name: nn.Parameter(weight.detach().float()) if kept and weight.dtype in HALF else weight
            for name, weight in weights.items()
        }
        self.own = {name: master for name, master in self.parameters.items() if master is not weights[name]}
        """Masters that are not the weights themselves."""
        self.spare: list[Tensor] | None = None
        """Large sums that were added to others, inside `reusing`; the next ones are written over them."""

    @torch.no_grad()
    def follow(self) -> None:
        """Copy weights that were changed since the last update by a swap, a merge or a rollback."""
        for name in self._changed():
            self.own[name].copy_(self._weights[name])

    def _changed(self) -> list[str]:
        """Names of weights that are not their masters, rounded. A GPU is waited for once."""
        pairs = ((self._weights[name], master) for name, master in self.own.items())
        differs = [_is_other(weight, master.to(weight.dtype)) for weight, master in pairs]
        there = [one for one in differs if isinstance(one, Tensor)]
        found = iter(torch.stack(there).cpu().tolist() if there else ())
        is_other = [next(found) if isinstance(one, Tensor) else one for one in differs]
        return [name for name, changed in zip(self.own, is_other, strict=True) if changed]

    @contextmanager
    def collecting(self, in_parts: Collection[str] = ()) -> Iterator[None]:
        """Inside, gradients of the weights are added to those of their masters as soon as each is made, so that few
        exist at a time. Kernels add theirs themselves (`posttrain.kernels.products.master_of`), with the same bits.

        What one backward pass adds to the weights `in_parts` is added up by itself first, and at the end to what was
        there: (s0) + (a1 + b1), not (s0 + a1) + b1, so that the bits are those of slices from several processes.
        """
        at_once = {name: master for name, master in self.own.items() if name not in in_parts}
        before = {name: self._weights[name].grad for name in in_parts if name in self._weights}
        for name in before:
            self._weights[name].grad = None
        hooks = [
            self._weights[name].register_post_accumulate_grad_hook(  # type: ignore[no-untyped-call]
                partial(_collect, master=master)
            )
            for name, master in at_once.items()
        ]
        for name, master in at_once.items():
            self._weights[name].master = master  # type: ignore[attr-defined]
        try:
            with rounded_once(self.spare) as sums:
                yield
                for name in before:
                    sums.give(self._weights[name], self.own.get(name))
        finally:
            for name in at_once:
                del self._weights[name].master  # type: ignore[attr-defined]
            for hook in hooks:
                hook.remove()
            for name, sum_before in before.items():
                weight = self._weights[name]
                if name in self.own:
                    _collect(weight, self.own[name])
                elif sum_before is not None:
                    if weight.grad is not None:
                        sum_before.add_(weight.grad)
                        keep_spare(weight.grad, self.spare)
                    weight.grad = sum_before

    @contextmanager
    def reusing(self) -> Iterator[None]:
        """Inside, the memory of a large sum that was added to another is kept for that of the next micro-batch."""
        self.spare = []
        try:
            yield
        finally:
            self.spare = None

    @torch.no_grad()
    def publish(self) -> None:
        """Round the masters to the weights; call after every update."""
        for name, master in self.own.items():
            self._weights[name].copy_(master)


def _collect(weight: Tensor, master: nn.Parameter) -> None:
    """Add the gradient of a weight to that of its master."""
    gradient, weight.grad = weight.grad, None
    if gradient is not None:
        master.grad = gradient.float() if master.grad is None else master.grad.add_(gradient)


def _is_other(one: Tensor, other: Tensor) -> bool | Tensor:
    """Whether two tensors differ anywhere; on a GPU a tensor, which nobody has waited for."""
    return not torch.equal(one, other) if one.device.type == "cpu" else (one != other).any()
