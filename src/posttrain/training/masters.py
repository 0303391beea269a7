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

from posttrain.kernels.memory import LARGE, Block, block_of
from posttrain.kernels.products import goes_straight, room_of
from posttrain.kernels.rooms import on_lines, room_in
from posttrain.policies.vocabulary import Total, keep_spare, keeping_logits, rounded_once

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
        self._block: Block | None = None
        self._stamps = self._read_stamps()

    @torch.no_grad()
    def follow(self) -> None:
        """Copy weights that were changed since the last update by a swap, a merge or a rollback."""
        for name in self._changed():
            self.own[name].copy_(self._weights[name])
        self._stamps = self._read_stamps()

    def forget(self) -> None:
        """The masters were changed: the next `follow` compares all of them with their weights."""
        self._stamps = {}

    def _read_stamps(self) -> dict[str, tuple[int, int]]:
        """What changes with a weight: its place, and the number of its changes."""
        return {name: (self._weights[name].data_ptr(), self._weights[name]._version) for name in self.own}

    def _changed(self) -> list[str]:
        """Names of weights that are not their masters, rounded. A GPU is waited for once."""
        now = self._read_stamps()
        touched = [name for name in self.own if self._stamps.get(name) != now[name]]
        pairs = ((self._weights[name], self.own[name]) for name in touched)
        differs = [_is_other(weight, master.to(weight.dtype)) for weight, master in pairs]
        there = [one for one in differs if isinstance(one, Tensor)]
        found = iter(torch.stack(there).cpu().tolist() if there else ())
        is_other = [next(found) if isinstance(one, Tensor) else one for one in differs]
        return [name for name, changed in zip(touched, is_other, strict=True) if changed]

    @contextmanager
    def collecting(self, in_parts: Collection[str] = ()) -> Iterator[None]:
        """Inside, gradients of the weights are added to those of their masters as soon as each is made, so that few
        exist at a time. Kernels add theirs themselves (`posttrain.kernels.products.master_of`), with the same bits.

        What one backward pass adds to the weights `in_parts` is added up by itself first, and at the end to what was
        there: (s0) + (a1 + b1), not (s0 + a1) + b1, so that the bits are those of slices from several processes.
        """
        at_once = {name: master for name, master in self.own.items() if name not in in_parts}
        straight = at_once | {name: self._weights[name] for name in self._first() if name not in in_parts}
        totals = {name: self._total(name) for name in in_parts if name in self._weights}
        hooks = [
            self._weights[name].register_post_accumulate_grad_hook(  # type: ignore[no-untyped-call]
                partial(_collect, master=master)
            )
            for name, master in at_once.items()
        ]
        for name, parameter in straight.items():
            self._weights[name].master = parameter  # type: ignore[attr-defined]
        try:
            with rounded_once(self.spare) as sums:
                for name, total in totals.items():
                    self._weights[name].grad = None
                    sums.collect(self._weights[name], total)
                yield
                for name in totals:
                    sums.give(self._weights[name])
        finally:
            for name in straight:
                self._weights[name].__dict__.pop("master")
            for hook in hooks:
                hook.remove()
            for name, total in totals.items():
                weight = self._weights[name]
                if weight.grad is not None and total.add(weight.grad, weight.dtype):  # by torch itself
                    keep_spare(weight.grad, self.spare)
                weight.grad = None
                self.parameters[name].grad = total.sum_VD

    def _total(self, name: str) -> Total:
        """The sum of the gradients of a weight so far."""
        parameter = self.parameters[name]
        return Total(parameter.grad, parameter.dtype, room_of(parameter))

    def _first(self) -> list[str]:
        """Names of full-precision weights whose first gradient is written into the block. More are left to torch, which
        adds them up faster than kernels that wait for memory.
        """
        full = ((name, weight) for name, weight in self._weights.items() if name not in self.own)
        return [name for name, weight in full if weight.grad is None and room_of(weight) is not None]

    @contextmanager
    def reusing(self) -> Iterator[None]:
        """Inside, the memory of large logits, and of a large sum that was added to another, is kept for those of the
        next micro-batch, and gradients of large matrices are written into a block that is kept from update to update.
        """
        self.spare = []
        new = [p for p in self.parameters.values() if p.grad is None and goes_straight(p)]
        size = sum(on_lines(4 * parameter.numel()) for parameter in self.parameters.values())
        if new and size >= LARGE:
            self._block = block_of(size + size // 4)  # prepared weights, padded, fit too; what is not used takes none
            room = room_in(self._block, size) or room_in(Block(size), size)
            for parameter in new:
                parameter.room = room and room.take(parameter.shape, parameter.dtype)  # type: ignore[attr-defined]
        try:
            with keeping_logits():
                yield
        finally:
            self.spare = None
            for parameter in new:
                parameter.__dict__.pop("room", None)

    @torch.no_grad()
    def publish(self) -> None:
        """Round the masters to the weights; call after every update."""
        for name, master in self.own.items():
            self._weights[name].copy_(master)
        self._stamps = self._read_stamps()


def _collect(weight: Tensor, master: nn.Parameter) -> None:
    """Add the gradient of a weight to that of its master."""
    gradient, weight.grad = weight.grad, None
    if gradient is not None:
        master.grad = gradient.float() if master.grad is None else master.grad.add_(gradient)


def _is_other(one: Tensor, other: Tensor) -> bool | Tensor:
    """Whether two tensors differ anywhere; on a GPU a tensor, which nobody has waited for."""
    return not torch.equal(one, other) if one.device.type == "cpu" else (one != other).any()
