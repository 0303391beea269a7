"""The inputs of a model's last MLP: normed hidden states, which GAIN-RL (arXiv:2506.02281) takes angles of."""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import torch

from posttrain.errors import UserError
from posttrain.policies import Packed, Policy
from posttrain.policies._modules import Layer
from posttrain.types import FloatArray, IntArray

NAMES: Final = ("up_proj", "gate_up_proj", "w3", "fc1", "c_fc", "dense_h_to_4h")
"""What the first linear layer of an MLP is called, whose input is read."""


def last_mlp_inputs(policy: Policy, role: str, token_ids: Sequence[IntArray]) -> list[FloatArray]:
    """For each sequence [L, D] float32, without padding. Raises `UserError` for a model without an MLP by these names.

    One forward pass a sequence, so that no sequence depends on another.
    """
    found = [module for name, module in policy.named_modules() if name.rpartition(".")[2] in NAMES]
    if not found:
        raise UserError(
            f"the model of the role '{role}' has no MLP by the usual names ({', '.join(NAMES)}), whose inputs are "
            "to be read; give another model"
        )
    device = next(policy.parameters()).device
    seen: list[torch.Tensor] = []

    def keep(_: torch.nn.Module, inputs: tuple[Any, ...]) -> None:
        seen.append(inputs[0].detach())

    layers = [module for module in policy.modules() if isinstance(module, Layer)][-1:]
    hook = found[-1].register_forward_pre_hook(keep)
    states: list[FloatArray] = []
    try:
        for layer in layers:
            layer.watched = True
        for ids in token_ids:
            seen.clear()
            ids_L = torch.as_tensor(np.asarray(ids), dtype=torch.int64, device=device)
            with torch.no_grad():
                policy.body.hidden(Packed(token_ids_L=ids_L, starts=(0, len(ids))))
            last = seen[-1].reshape(-1, seen[-1].shape[-1])[: len(ids)]
            states.append(last.float().cpu().numpy())
    finally:
        hook.remove()
        for layer in layers:
            layer.watched = False
    return states
