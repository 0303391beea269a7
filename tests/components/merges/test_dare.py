"""DARE: unbiased, keyed by seed and parameter, and what follows it."""

import torch

from posttrain.components.merges.dare import DARE
from posttrain.components.merges.task_arithmetic import TaskArithmetic
from posttrain.components.merges.ties import TIES

BASE = torch.full((200, 200), 3.0, dtype=torch.float64)
OTHER = torch.full((200, 200), 5.0, dtype=torch.float64)


def test_the_mean_is_unchanged() -> None:
    merged = DARE(p=0.75, then=TaskArithmetic(alpha=1.0))("w", (BASE, OTHER), {})
    assert sorted(set(merged.flatten().tolist())) == [3.0, 11.0]
    share = float((merged == 11.0).double().mean())
    assert abs(share - 0.25) < 5 * (0.25 * 0.75 / 40_000) ** 0.5


def test_draws_are_of_the_seed_the_parameter_and_the_model() -> None:
    def drawn(seed: int, name: str) -> torch.Tensor:
        return DARE(p=0.5, seed=seed, then=TaskArithmetic(alpha=1.0))(name, (BASE, OTHER), {})

    assert torch.equal(drawn(0, "w"), drawn(0, "w"))
    assert not torch.equal(drawn(0, "w"), drawn(0, "v")) and not torch.equal(drawn(0, "w"), drawn(1, "w"))
    both = DARE(p=0.5, then=TaskArithmetic(alpha=1.0))("w", (BASE, OTHER, OTHER), {})
    assert set(both.flatten().tolist()) == {3.0, 7.0, 11.0}


def test_at_the_ends() -> None:
    assert torch.equal(DARE(p=1.0)("w", (BASE, OTHER), {}), BASE)
    assert torch.equal(DARE(p=0.0, then=TaskArithmetic(alpha=1.0))("w", (BASE, OTHER), {}), OTHER)


def test_by_size_then_ties() -> None:
    base, other = torch.zeros(4, dtype=torch.float64), torch.tensor([1.0, -4.0, 2.0, 3.0], dtype=torch.float64)
    merged = DARE(p=0.5, by_size=True, then=TIES(rate=0.0, alpha=0.5))("w", (base, other), {})
    assert merged.tolist() == [0.0, -4.0, 0.0, 3.0]
