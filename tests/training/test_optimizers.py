"""AdamW beside torch's class for it."""

import subprocess
import sys

import pytest
import torch
from torch import nn

from posttrain.components.optimizers._adamw import AdamWUpdates

SHARED = {"lr": 1e-2, "betas": (0.9, 0.95), "eps": 1e-8}


def weights(dtype: torch.dtype) -> list[nn.Parameter]:
    rng = torch.Generator().manual_seed(0)
    return [nn.Parameter(torch.randn(*shape, generator=rng).to(dtype)) for shape in ((5, 3), (7,), (2, 2))]


def groups(parameters: list[nn.Parameter]) -> list[dict[str, object]]:
    return [{"params": parameters[:1], "weight_decay": 0.1}, {"params": parameters[1:], "weight_decay": 0.0}]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("fused", [True, False])
def test_the_same_to_the_bit_as_the_class_in_torch(dtype: torch.dtype, fused: bool) -> None:
    ours, theirs = weights(dtype), weights(dtype)
    updates = AdamWUpdates(groups(ours), fused=fused, **SHARED)
    reference = torch.optim.AdamW(groups(theirs), fused=fused, **SHARED)  # type: ignore[arg-type]
    rng = torch.Generator().manual_seed(1)
    for step in range(6):
        for optimizer in (updates, reference):
            for group in optimizer.param_groups:
                group["lr"] = 1e-2 / (step + 1)
        for a, b in zip(ours, theirs, strict=True):
            a.grad = torch.randn(a.shape, generator=rng).to(dtype)
            b.grad = a.grad.clone()
        if step == 3:  # a weight that nothing used
            ours[1].grad = theirs[1].grad = None
        updates.step()
        reference.step()
        for a, b in zip(ours, theirs, strict=True):
            assert torch.equal(a, b)
            assert updates.state[a].keys() == reference.state[b].keys()
            for name, kept in updates.state[a].items():
                assert torch.equal(kept, reference.state[b][name]), name
                assert (kept.dtype, kept.device) == (reference.state[b][name].dtype, reference.state[b][name].device)
        updates.zero_grad()
        assert all(parameter.grad is None for parameter in ours)


@pytest.mark.slow
def test_to_make_and_to_call_it_does_not_import_the_compiler_of_torch() -> None:
    """It takes a second and 70 MB."""
    script = """
import sys
from torch import nn
import torch
from posttrain.components.optimizers.adamw import AdamW

weight = nn.Parameter(torch.ones(2, 2))
weight.grad = torch.ones(2, 2)
[updates] = AdamW().build({"weight": weight})
updates.step()
updates.zero_grad()
sys.exit("torch._dynamo" in sys.modules)
"""
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
