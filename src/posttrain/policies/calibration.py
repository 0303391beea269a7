"""Measures models on calibration texts, for merges that are informed by it: inputs of layers, sensitivities of weights.

Both are over the measured tokens of packed texts, a forward pass each; the model is left as it was.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from posttrain.policies import Packed, Policy
from posttrain.signals import LOGP


@dataclass(frozen=True, kw_only=True)
class Text:
    """A few texts in one forward pass, and the tokens whose likelihood counts."""

    packed: Packed
    positions_T: Tensor


class _Observed(nn.Linear):
    """A linear layer that adds up the sizes of its inputs."""

    total: Tensor
    rows: int

    def forward(self, input: Tensor) -> Tensor:
        """[..., out] from [..., in]."""
        self.total += input.detach().abs().double().flatten(0, -2).sum(0)
        self.rows += input.numel() // input.shape[-1]
        return F.linear(input, self.weight, self.bias)


@contextmanager
def _observing(policy: Policy) -> Iterator[dict[str, _Observed]]:
    """The plain linear layers of a model by name; kernels leave layers of another type to the layers themselves."""
    found = {name: module for name, module in policy.named_modules() if type(module) is nn.Linear}
    try:
        for module in found.values():
            module.__class__ = _Observed
            assert isinstance(module, _Observed), "it was given that class"
            module.total, module.rows = module.weight.new_zeros(module.in_features, dtype=torch.float64), 0
        yield {name: module for name, module in found.items() if isinstance(module, _Observed)}
    finally:
        for module in found.values():
            module.__class__ = nn.Linear
            for name in ("total", "rows"):
                module.__dict__.pop(name, None)


@torch.no_grad()
def input_means(policy: Policy, texts: Sequence[Text]) -> dict[str, Tensor]:
    """By name of the weight of a linear layer, float64 [inputs]: the mean size of each of its inputs.

    Rows of padding, at most 15 in a forward pass, are among them. Layers that no text goes through are left out.
    """
    with _observing(policy) as layers:
        for text in texts:
            policy.body.hidden(text.packed)
        return {f"{name}.weight": layer.total / layer.rows for name, layer in layers.items() if layer.rows}


def sensitivities(policy: Policy, texts: Sequence[Text]) -> dict[str, float]:
    """By name of a parameter the sum of the sizes of weight times gradient, of the mean loss of the tokens."""
    parameters = dict(policy.named_parameters())
    were = {name: parameter.requires_grad for name, parameter in parameters.items()}
    total = sum(len(text.positions_T) for text in texts)
    try:
        for parameter in parameters.values():
            parameter.requires_grad_(True)
        for text in texts:
            logp_T = policy.evaluate(text.packed, text.positions_T)[LOGP]
            (-logp_T.sum() / total).backward()  # type: ignore[no-untyped-call]
        return {name: _size(parameter) for name, parameter in parameters.items()}
    finally:
        for name, parameter in parameters.items():
            parameter.grad = None
            parameter.requires_grad_(were[name])


def _size(parameter: nn.Parameter) -> float:
    return (
        0.0 if parameter.grad is None else float((parameter.detach() * parameter.grad).abs().sum(dtype=torch.float64))
    )
