"""Masked training: what is masked out keeps every bit, whatever the optimizer does."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from posttrain.components.objectives.policy_gradient import PolicyGradient
from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.optimizers.muon import Muon
from posttrain.components.reducers.tokens import Tokens
from posttrain.errors import UserError
from posttrain.policies import Policy
from posttrain.training.learner import Learner, Loss
from posttrain.training.packing import Example
from posttrain.training.settings import Learning

Examples = Callable[..., list[Example]]
LOSS = Loss(per_token=PolicyGradient(), reducer=Tokens())


def masks_of(policy: Policy, make: Callable[[Tensor], Tensor]) -> dict[str, Tensor]:
    return {name: make(p.detach()).to(torch.uint8) for name, p in policy.body.named_parameters()}


def checkered(tensor: Tensor) -> Tensor:
    return (torch.arange(tensor.numel()) % 3 == 0).reshape(tensor.shape)


def trained(policy: Policy, examples_of: Examples, steps: int = 3, **settings: Any) -> dict[str, Tensor]:
    learner = Learner(policy, Learning(**settings), seed=0, num_steps=steps)
    for step in range(steps):
        learner.step(examples_of(6, seed=step), LOSS, progress=0.0)
    return {name: p.detach().clone() for name, p in policy.body.named_parameters()}


@pytest.mark.parametrize("optimizer", [AdamW(lr=1e-2, weight_decay=0.5), Muon(lr=1e-2)], ids=lambda o: str(o.kind))
def test_masked_out_entries_are_bit_for_bit_what_they_were(
    tiny_policy: Callable[[], Policy], examples_of: Examples, tmp_path: Path, optimizer: Any
) -> None:
    policy = tiny_policy()
    before = {name: p.detach().clone() for name, p in policy.body.named_parameters()}
    masks = masks_of(policy, checkered)
    save_file(masks, tmp_path / "mask.safetensors")
    after = trained(policy, examples_of, optimizer=optimizer, mask=str(tmp_path / "mask.safetensors"))
    moved = {name: after[name] != before[name] for name in after}
    assert not any((moved[name] & (masks[name] == 0)).any() for name in moved)
    q_proj = next(name for name in moved if name.endswith("q_proj.weight"))
    # Not all of them: Muon's updates are as coarse as bfloat16, and three may cancel.
    assert moved[q_proj][masks[q_proj] == 1].float().mean() > 0.99


def test_with_everything_let_through_nothing_is_different(
    tiny_policy: Callable[[], Policy], examples_of: Examples, tmp_path: Path
) -> None:
    path = tmp_path / "all.safetensors"
    save_file(masks_of(tiny_policy(), torch.ones_like), path)
    masked = trained(tiny_policy(), examples_of, mask=str(path))
    plain = trained(tiny_policy(), examples_of)
    assert all(torch.equal(masked[name], plain[name]) for name in plain)


def test_the_norm_is_that_of_what_is_let_through(
    tiny_policy: Callable[[], Policy], examples_of: Examples, tmp_path: Path
) -> None:
    """With nothing let through the norm is 0, so that clipping is a matter of what is updated."""
    path = tmp_path / "none.safetensors"
    save_file(masks_of(tiny_policy(), torch.zeros_like), path)
    policy = tiny_policy()
    before = {name: p.detach().clone() for name, p in policy.body.named_parameters()}
    learner = Learner(policy, Learning(mask=str(path)), seed=0, num_steps=1)
    assert learner.step(examples_of(6), LOSS, progress=0.0).metrics["gradient_norm"] == 0.0
    assert all(torch.equal(p, before[name]) for name, p in policy.body.named_parameters())


def test_files_that_do_not_fit_are_refused(tiny_policy: Callable[[], Policy], tmp_path: Path) -> None:
    policy, path = tiny_policy(), tmp_path / "mask.safetensors"

    def refused(message: str) -> None:
        with pytest.raises(UserError, match=message):
            Learner(policy, Learning(mask=str(path)), seed=0, num_steps=1)

    refused(r"learner.mask: there is no file .*mask.safetensors.* `posttrain diagnose sparsity BEFORE AFTER mask=FILE`")
    path.write_bytes(b"not tensors")
    refused("is damaged or not a safetensors file")
    masks = masks_of(policy, torch.ones_like)
    name = next(iter(masks))
    save_file({other: mask for other, mask in masks.items() if other != name}, path)
    refused(rf"has no tensor '{name}'")
    save_file(masks | {name: torch.ones(3)}, path)
    refused(rf"tensor '{name}' is \[3\], the model's is")
