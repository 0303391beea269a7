"""TIES: both published counts, the elected sign, the mean of those that agree, over a tensor and over the model."""

import pytest
import torch

from posttrain.components.merges import Whole
from posttrain.components.merges.ties import TIES

Z = torch.zeros(5, dtype=torch.float64)


def row(*numbers: float) -> torch.Tensor:
    return torch.tensor(numbers, dtype=torch.float64)


def whole(models: list[tuple[torch.Tensor, ...]]) -> Whole:
    return Whole(
        tensors=lambda: ((f"p{i}", tensors) for i, tensors in enumerate(models)),
        inputs=dict,
        sensitivities=list,
    )


@pytest.mark.parametrize(
    ("rate", "count", "kept"),
    [(0.8, "release", 21), (0.8, "mergekit", 20), (0.0, "release", 100), (0.0, "mergekit", 100), (1.0, "release", 1),
     (1.0, "mergekit", 1), (0.005, "release", 100), (0.29, "release", 73), (0.29, "mergekit", 71)],
)  # fmt: skip
def test_how_many_are_kept(rate: float, count: str, kept: int) -> None:
    """int(.29 * 100) is 28 in floating point, and so in the release; both counts then differ by two."""
    method = TIES(rate=rate, count=count)  # type: ignore[arg-type]
    assert method.kept(100) == kept
    numbers = torch.randperm(100, generator=torch.Generator().manual_seed(0)).double() + 1
    merged = method("w", (torch.zeros(100, dtype=torch.float64), numbers), {})
    assert int((merged != 0).sum()) == kept
    assert merged.abs().sort().values[-kept:].tolist() == list(range(101 - kept, 101))


def test_signs_are_elected_and_the_agreeing_averaged() -> None:
    a, b, c = row(4, -1, 0, 2, 1), row(2, -3, 5, -2, 1), row(-9, 0, 1, 0, 1)
    merged = TIES(rate=0.0, alpha=2.0)("w", (Z, a, b, c), {})
    # Sums: -3, -4, 6, 0 (plus), 3. Agreeing: {-9}, {-1, -3}, {5, 1}, {2}, {1, 1, 1}.
    assert merged.tolist() == [-18.0, -4.0, 6.0, 4.0, 2.0]


def test_over_the_model() -> None:
    """One limit for both tensors, and zero sums take the sign of the most places."""
    first = (row(0, 0), row(1, -5), row(-1, -7))
    second = (row(0, 0), row(-3, 2), row(-6, -8))
    method = TIES(rate=0.5, scope="model")
    survey = method.survey(whole([first, second]))
    assert survey == {"limits": [2.0, 6.0], "sign": -1.0}  # of 1, 5, 3, 2 and of 1, 7, 6, 8 three are kept
    assert method("p0", first, survey).tolist() == [0.0, -6.0]
    assert method("p1", second, survey).tolist() == [-4.5, -8.0]
    assert TIES(rate=0.5, scope="model", count="mergekit").survey(whole([first, second]))["limits"] == [3.0, 7.0]


def test_over_a_model_of_one_tensor_it_is_that_over_the_tensor() -> None:
    generator = torch.Generator().manual_seed(1)
    tensors = [torch.randn(300, generator=generator).double() for _ in range(3)]
    tensors[0].zero_()
    method = TIES(rate=0.7, scope="model")
    by_model = method("p0", tensors, method.survey(whole([tuple(tensors)])))
    assert torch.equal(by_model, TIES(rate=0.7)("p0", tensors, {}))


def test_it_is_mergekits() -> None:
    """The same trimmed differences and the same merge as mergekit's TIES, normalized, of three models."""
    sparsify = pytest.importorskip("mergekit.sparsify")
    arithmetic = pytest.importorskip("mergekit.merge_methods.generalized_task_arithmetic")
    generator = torch.Generator().manual_seed(3)
    base, *others = (torch.randn(40, 50, generator=generator) for _ in range(4))
    method = sparsify.SparsificationMethod.magnitude
    deltas = torch.stack([sparsify.sparsify(other - base, 0.3, method) for other in others])
    mask = arithmetic.get_mask(deltas, "sum")
    counts = mask.sum(0)
    expected = base + 0.5 * (deltas * mask).sum(0) / counts.where(counts > 0, torch.ones_like(counts))
    merged = TIES(rate=0.7, alpha=0.5, count="mergekit")("w", (base, *others), {})
    assert torch.allclose(merged, expected, atol=1e-6)
    release = TIES(rate=0.7, alpha=0.5)("w", (base, *others), {})
    assert not torch.allclose(release, expected, atol=1e-6), "the release keeps an entry more of each difference"
