"""Steps that are merged with an earlier change of the weights, by hand and against AdamW."""

from typing import Any

import pytest
import torch
from torch import nn

from posttrain.components.optimizers._merging import sparse
from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.optimizers.online_merging import OnlineMerging
from posttrain.errors import UserError


def parameters(seed: int = 0) -> dict[str, nn.Parameter]:
    generator = torch.Generator().manual_seed(seed)
    shapes = {"w": (3, 4), "b": (5,)}
    return {name: nn.Parameter(torch.randn(shape, generator=generator)) for name, shape in shapes.items()}


def weights(seed: int) -> dict[str, torch.Tensor]:
    return {name: p.detach() for name, p in parameters(seed).items()}


def trained(settings: Any, steps: int = 3, others: Any = None) -> dict[str, torch.Tensor]:
    own = parameters()
    made = settings.build(own, others)
    for step in range(steps):
        for p in own.values():
            p.grad = torch.full_like(p, 0.5 + step)
        for optimizer in made:
            optimizer.step()
            optimizer.zero_grad()
    return {name: p.detach() for name, p in own.items()}


OTHERS = {"reference": weights(1), "base": weights(2)}


def test_with_everything_kept_and_nothing_added_it_is_adamw_to_the_bit() -> None:
    ours = trained(OnlineMerging(lr=0.1, keep=1.0, alpha=0.0), others=OTHERS)
    theirs = trained(AdamW(lr=0.1))
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_a_step_by_hand() -> None:
    """The first step of AdamW is -lr for a positive gradient; tau is held in [-1, 1]."""
    found = trained(OnlineMerging(lr=0.1, keep=1.0, alpha=0.25), steps=1, others=OTHERS)
    for name, start in weights(0).items():
        tau = (OTHERS["reference"][name] - OTHERS["base"][name]).clamp(-1.0, 1.0)
        assert torch.allclose(found[name], start - 0.75 * 0.1 + 0.25 * tau, atol=1e-6)


def test_sparse_steps_keep_a_share_and_the_mean() -> None:
    kept = sparse(torch.ones(20_000), 0.25, "w", 3)
    assert set(kept.unique().tolist()) == {0.0, 4.0}
    assert abs(float((kept > 0).float().mean()) - 0.25) < 0.02
    assert torch.equal(kept, sparse(torch.ones(20_000), 0.25, "w", 3))
    assert not torch.equal(kept, sparse(torch.ones(20_000), 0.25, "w", 4))
    assert not torch.equal(kept, sparse(torch.ones(20_000), 0.25, "b", 3))


def test_models_of_other_shapes_and_missing_roles_are_refused() -> None:
    with pytest.raises(UserError, match="needs models of one shape; 'w' has"):
        OnlineMerging().build(parameters(), {"reference": weights(1), "base": {"b": weights(2)["b"]}})
    with pytest.raises(UserError, match="reads the roles 'reference' and 'base'"):
        OnlineMerging().build(parameters())
    assert OnlineMerging(base="before").roles == {"reference", "before"}
