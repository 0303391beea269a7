"""The limits of the machine: matrix products at the shapes of a model, and memory bandwidth."""

import time
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

from posttrain.kernels import products as own
from posttrain.runs.speed.sizes import BY_KERNEL, Size

TYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
_LEAST = 0.1
"""Seconds that a product is repeated for. Processors are up to a third faster for some milliseconds than they stay, and
other machines' work comes and goes: a limit that nothing could keep up for a turn would be none."""
MOST = 1 << 33
"""Products of two numbers in a matrix product of the learner: more take many seconds, and no less time each."""
_COPIED = 1 << 28
"""Bytes that are copied: far more than any cache of a processor holds, except on the largest servers."""


class Limits:
    """The rates of products in one number type. A turn measures each of them once."""

    def __init__(self, size: Size, dtype: str, device: torch.device, rows: list[int], learning_rows: int) -> None:
        """`rows` are the numbers of rows in sampling, `learning_rows` is that of a pass of the learner."""
        self.device, self.type = device, TYPES[dtype]
        self._ways: dict[str, tuple[float, Callable[[], Any]]] = {}
        for name, (inputs, outputs) in size.products.items():
            weight = torch.randn(outputs, inputs, device=device).to(self.type)
            for way, laid in self._kinds(weight):
                for count in rows:
                    self._add_sampling(f"sampling {name} {count}x{inputs}x{outputs}{way}", laid, count)
                count = min(learning_rows, max(256, MOST // laid.numel()))
                self._add_learning(f"learning {name} {count}x{inputs}x{outputs}", way, laid, count)
        self._source = torch.ones(_COPIED // 4, device=device)
        self._target = torch.empty_like(self._source)

    @property
    def ways(self) -> list[str]:
        """Names of the products that are measured."""
        return list(self._ways)

    def turn(self) -> dict[str, Any]:
        """GFLOP/s of every product, best way, and GB/s of reading and writing in a copy."""
        begun = time.perf_counter()
        rates = {name: flops / self._seconds(way) / 1e9 for name, (flops, way) in self._ways.items()}
        copied = self._seconds(lambda: self._target.copy_(self._source))
        return {"seconds": time.perf_counter() - begun, "gflops": rates, "copy_gb_s": 2 * _COPIED / copied / 1e9}

    def _kinds(self, weight: Tensor) -> list[tuple[str, Tensor]]:
        """A matrix in the types that products may be made in: without a matrix unit, a processor may be faster in
        float32 than in bfloat16, and what is stored in one can be computed in the other.
        """
        kinds = [("", weight)]
        if self.type == torch.bfloat16 and self.device.type == "cpu":
            kinds.append((" in float32", weight.float()))
        return kinds

    def _add_sampling(self, name: str, weight: Tensor, rows: int) -> None:
        """A forward product, as torch does it, and with weights laid out in advance where that can be done."""
        x = torch.randn(rows, weight.shape[1], device=self.device).to(weight.dtype)
        flops = 2.0 * rows * weight.numel()
        self._ways[name] = flops, lambda: F.linear(x, weight)
        packed = _packed(weight, rows) if self.device.type == "cpu" else None
        if packed is not None:
            self._ways[f"{name} packed"] = flops, lambda: packed(x)

    def _add_learning(self, name: str, way: str, weight: Tensor, rows: int) -> None:
        """A forward product and the two of the backward pass, as torch does them and by the learner's kernel."""
        x = torch.randn(rows, weight.shape[1], device=self.device).to(weight.dtype)
        grad = torch.randn(rows, weight.shape[0], device=self.device).to(weight.dtype)

        def products() -> None:
            F.linear(x, weight)
            torch.mm(grad, weight)
            torch.mm(grad.t(), x)

        flops = 6.0 * rows * weight.numel()
        self._ways[name + way] = flops, products
        if own.covered(x, grad, weight):
            self._ways[f"{name} {BY_KERNEL}{way}"] = (
                flops,
                lambda: (own.product(x, weight.t()), own.product(grad, weight), own.product(grad.t(), x)),
            )

    def _seconds(self, way: Callable[[], Any]) -> float:
        """Seconds of one call, of many."""
        with torch.no_grad():
            way()
            once = min(_timed(way, 1, self.device) for _ in range(3))
            return _timed(way, max(1, round(_LEAST / max(once, 1e-7))), self.device)


def synchronize(device: torch.device) -> None:
    """Waits until a GPU has finished its work."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _timed(way: Callable[[], Any], repeats: int, device: torch.device) -> float:
    """Seconds of a call, from this many."""
    synchronize(device)
    begun = time.perf_counter()
    for _ in range(repeats):
        way()
    synchronize(device)
    return (time.perf_counter() - begun) / repeats


def _packed(weight: Tensor, rows: int) -> Callable[[Tensor], Tensor] | None:
    """The product with oneDNN's own layout of the weights; None where this build of torch does not have it."""
    try:
        laid_out = torch.ops.mkldnn._reorder_linear_weight(weight, rows)
        product = torch.ops.mkldnn._linear_pointwise
        product(torch.zeros(rows, weight.shape[1], dtype=weight.dtype), laid_out, None, "none", [], "")
    except (RuntimeError, AttributeError):
        return None
    return lambda x: product(x, laid_out, None, "none", [], "")
