"""Tensors of the CPU that say they are on a GPU, for finding what a GPU would refuse, where there is none.

Inside of `Pretended`, what is made on, or sent to, `GPU` is a `Far` tensor: it computes on the CPU, and raises as CUDA
would where tensors of both sides meet. What would make the host wait for the GPU is counted by where it stands.
"""

import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map

import posttrain

GPU = torch.device("cuda", 0)
SOURCE = str(Path(posttrain.__file__).parent)
aten = torch.ops.aten
COPIES = (aten._to_copy.default, aten.copy_.default)
INDEXED = (aten.index.Tensor, aten.index_put_.default, aten.index_put.default, aten._index_put_impl_.default)
"""Their indices may be on the host, whatever is indexed: torch sends them on."""
WAITS = (
    aten._local_scalar_dense.default,
    aten.nonzero.default,
    aten.masked_select.default,
    aten.repeat_interleave.Tensor,
    aten.equal.default,
)
"""What the host must wait for: numbers and shapes."""


class Far(Tensor):
    """A tensor of the CPU that claims to be on a GPU."""

    host: Tensor

    @staticmethod
    def __new__(cls, host: Tensor) -> "Far":
        found: Far = torch.Tensor._make_wrapper_subclass(  # type: ignore[attr-defined]
            cls,
            host.shape,
            strides=host.stride(),
            storage_offset=host.storage_offset(),
            dtype=host.dtype,
            device="meta",  # so that no kernel of the CPU is ever looked for
        )
        return found

    def __init__(self, host: Tensor) -> None:
        self.host = host

    __torch_function__ = torch._C._disabled_torch_function_impl
    device = property(lambda self: GPU)  # type: ignore[assignment]
    is_cuda = property(lambda self: True)  # type: ignore[assignment]
    is_cpu = property(lambda self: False)  # type: ignore[assignment]
    is_meta = property(lambda self: False)  # type: ignore[assignment]

    def data_ptr(self) -> int:
        return self.host.data_ptr()

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        if id(self) not in memo:
            copied = self.detach().clone()
            is_parameter = isinstance(self, torch.nn.Parameter)
            memo[id(self)] = torch.nn.Parameter(copied, self.requires_grad) if is_parameter else copied
        found: Tensor = memo[id(self)]
        return found

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise AssertionError(f"{func} outside of Pretended")


class Pretended(TorchDispatchMode):
    """Lets operations with `Far` tensors compute."""

    def __init__(self) -> None:
        super().__init__()
        self.waits: Counter[str] = Counter()

    def __enter__(self) -> "Pretended":
        self._lazy_init = torch.cuda._lazy_init
        torch.cuda._lazy_init = lambda: None  # asked for by whatever names the device; there is nothing to begin
        self._lifts = torch._C._only_lift_cpu_tensors()
        torch._C._set_only_lift_cpu_tensors(True)  # so that what `torch.tensor` makes is sent on where this sees it
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        torch._C._set_only_lift_cpu_tensors(self._lifts)
        torch.cuda._lazy_init = self._lazy_init

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        tensors = [x for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)]
        far = any(isinstance(x, Far) for x in tensors)
        named = kwargs.get("device")
        goes = torch.device(named).type in ("cuda", "meta") if named is not None else far
        if far:
            self._check(func, args, tensors, goes)
        if named is not None:
            kwargs["device"] = torch.device("cpu")
        if goes:
            kwargs.pop("pin_memory", None)
        given = {id(x.host): x for x in tensors if isinstance(x, Far)}
        out = BY_HAND.get(str(func), func)(*tree_map(_host, args), **tree_map(_host, kwargs))
        if func is aten.copy_.default and not isinstance(args[0], Far):
            return args[0]
        if not goes:
            return out
        return tree_map(lambda x: (given.get(id(x)) if id(x) in given else Far(x)) if isinstance(x, Tensor) else x, out)

    def _check(self, func: Any, args: Any, tensors: list[Tensor], goes: bool) -> None:
        """Raise where tensors of both sides meet, and note where the host would wait."""
        leaves = func is aten._to_copy.default and not goes
        leaves |= func is aten.copy_.default and not isinstance(args[0], Far)
        by_mask = func in INDEXED and any(x is not None and x.dtype in (torch.bool, torch.uint8) for x in args[1])
        if leaves or by_mask or func in WAITS:
            self.waits[_where()] += 1
        if func in COPIES:
            return
        if func in INDEXED:
            assert isinstance(args[0], Far), f"{func}: indices on the GPU of a tensor on the host, in {_where()}"
            tensors = [args[0], *args[2:3]]
        joins = func in (aten.cat.default, aten.stack.default)
        near = [x for x in tensors if not isinstance(x, Far) and (x.dim() > 0 or joins)]
        assert not near, f"{func}: a tensor {list(near[0].shape)} on the host meets the GPU's, in {_where()}"


def _host(x: Any) -> Any:
    return x.host if isinstance(x, Far) else x


def _sequences(q: Tensor, k: Tensor, v: Tensor, starts: Tensor, key_starts: Tensor) -> Iterator[tuple[Any, ...]]:
    """What flash attention does with packed sequences, one by one: rows, keys' rows, queries, keys, values, weights."""
    assert starts.dtype == key_starts.dtype == torch.int32, "as flash attention wants them"
    group = q.shape[1] // k.shape[1]
    for i in range(len(starts) - 1):
        rows, own = slice(*starts[i : i + 2].tolist()), slice(*key_starts[i : i + 2].tolist())
        query = q[rows].transpose(0, 1).float()
        key, value = (x[own].repeat_interleave(group, 1).transpose(0, 1).float() for x in (k, v))
        count, total = query.shape[1], key.shape[1]
        seen = torch.arange(total) <= torch.arange(count)[:, None] + total - count  # from the end of both
        scores = (query @ key.transpose(1, 2) * q.shape[2] ** -0.5).masked_fill(~seen, -torch.inf)
        yield rows, own, query, key, value, scores.softmax(-1)


def _varlen(q: Tensor, k: Tensor, v: Tensor, starts: Tensor, key_starts: Tensor, *more: Any) -> tuple[Tensor, ...]:
    """``torch_attn::_varlen_attn`` with a window to the left."""
    assert more[4] == [-1, 0], "a causal window"
    out = torch.empty_like(q)
    for rows, _, _, _, value, weights in _sequences(q, k, v, starts, key_starts):
        assert weights.shape[1] <= more[0] and weights.shape[2] <= more[1], "no longer than was said"
        out[rows] = (weights @ value).transpose(0, 1).to(q.dtype)
    return out, torch.zeros(q.shape[1], len(q)), torch.zeros(2, dtype=torch.uint64)


def _varlen_backward(grad: Tensor, q: Tensor, k: Tensor, v: Tensor, *more: Any) -> tuple[Tensor, ...]:
    """``torch_attn::_varlen_attn_backward``."""
    grads = [torch.zeros(x.shape) for x in (q, k, v)]
    for rows, own, query, key, value, weights in _sequences(q, k, v, more[2], more[3]):
        by_y = grad[rows].transpose(0, 1).float()
        by_weights = by_y @ value.transpose(1, 2)
        by_scores = weights * (by_weights - (by_weights * weights).sum(-1, keepdim=True)) * q.shape[2] ** -0.5
        grads[0][rows] += (by_scores @ key).transpose(0, 1)
        for whole, part in ((grads[1], by_scores.transpose(1, 2) @ query), (grads[2], weights.transpose(1, 2) @ by_y)):
            whole[own] += part.transpose(0, 1).unflatten(1, (k.shape[1], -1)).sum(2)
    return tuple(g.to(x.dtype) for g, x in zip(grads, (q, k, v), strict=True))


BY_HAND = {
    "torch_attn._varlen_attn.default": _varlen,
    "torch_attn._varlen_attn_backward.default": _varlen_backward,
}
"""Operations that the CPU does not have."""


def _where() -> str:
    """The innermost function of the package that is being run."""
    frame: Any = sys._getframe(2)
    while frame is not None and not frame.f_code.co_filename.startswith(SOURCE):
        frame = frame.f_back
    if frame is None:
        return "no function of posttrain"
    return f"{Path(frame.f_code.co_filename).relative_to(SOURCE)} {frame.f_code.co_name}"


def send(module: torch.nn.Module) -> None:
    """A module's parameters to the GPU, in place."""
    for part in module.modules():
        for name, parameter in list(part._parameters.items()):
            if parameter is not None:
                far = parameter.detach().clone().to(GPU)
                part._parameters[name] = torch.nn.Parameter(far, requires_grad=parameter.requires_grad)
