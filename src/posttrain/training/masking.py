"""Masked training: updates a subset of the weights and keeps all others bit-identical.

The gradient of a masked-out weight is 0 before the norm is computed, so that clipping is by the updated weights only.
An optimizer can change a weight without gradient (weight decay, Muon's orthogonal update, momentum), so after every
update masked-out weights are restored.
"""

from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from posttrain.component import nearest
from posttrain.errors import UserError
from posttrain.errors.foreign import guard

PREFIXES = ("body.causal.", "body.")
"""Prefix of a policy's parameter names, which the names in a model's files lack."""


class WeightMask:
    """Which entries of each trained parameter are updated."""

    def __init__(self, path: str, parameters: Mapping[str, nn.Parameter]) -> None:
        """Reads a mask for every parameter. Raises `UserError` for a file that does not match them."""
        self.parameters = parameters
        stored = _read(Path(path))
        self.masks: dict[str, Tensor] = {}
        for name, parameter in parameters.items():
            short = _short(name)
            if short not in stored:
                raise UserError(f"learner.mask '{path}' has no tensor '{short}'; {nearest(short, stored)}")
            if stored[short].shape != parameter.shape:
                got, needed = list(stored[short].shape), list(parameter.shape)
                raise UserError(f"learner.mask '{path}': tensor '{short}' is {got}, the model's is {needed}")
            self.masks[name] = stored[short].to(parameter.device) != 0
        self._kept = {name: parameter.detach().clone() for name, parameter in parameters.items()}

    def gradients(self) -> None:
        """Zero the gradient of masked-out entries; call before the norm is computed."""
        for name, parameter in self.parameters.items():
            if parameter.grad is not None:
                parameter.grad.masked_fill_(~self.masks[name], 0.0)

    def weights(self) -> None:
        """Restore the values of masked-out entries; call after an update."""
        with torch.no_grad():
            for name, parameter in self.parameters.items():
                parameter.copy_(torch.where(self.masks[name], parameter, self._kept[name]))


def _short(name: str) -> str:
    """The name of a policy's parameter in the model's files."""
    return next((name.removeprefix(prefix) for prefix in PREFIXES if name.startswith(prefix)), name)


def _read(path: Path) -> dict[str, Tensor]:
    """The tensors of a mask's file."""
    if not path.is_file():
        raise UserError(
            f"learner.mask: there is no file '{path}' (working in {Path.cwd()}); `posttrain diagnose sparsity BEFORE "
            "AFTER mask=FILE` writes one"
        )
    with guard(f"learner.mask '{path}' is damaged or not a safetensors file"):
        return load_file(path)
