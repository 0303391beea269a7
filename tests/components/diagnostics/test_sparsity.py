"""Update sparsity on tensors made by hand, in both types."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor

from posttrain.cli import main
from posttrain.components.diagnostics import Subject, _updates
from posttrain.components.diagnostics._updates import difference, measure, rank_ratio
from posttrain.components.diagnostics.sparsity import ROWS, Sparsity
from posttrain.errors import UserError
from posttrain.policies.folder import new_folder

BEFORE = torch.tensor([[0.02, 0.02], [1.0, 0.0]])
AFTER = torch.tensor([[0.02002, 0.0202], [1.0, 5e-6]])
"""In bfloat16 0.02 is 164 steps of 2^-13; 0.02002 is 164.0 and 0.0202 is 165.5 of them, which gives 165."""


def subjects(monkeypatch: pytest.MonkeyPatch, **models: dict[str, Tensor]) -> list[Subject]:
    """Models that are nothing but named tensors."""
    monkeypatch.setattr(_updates, "weights_of", lambda subject: models[subject.name])
    unused: Any = None
    return [Subject(name=name, load=unused, serve=unused) for name in models]


def test_changes_by_hand_in_both_types() -> None:
    exact = difference(BEFORE, AFTER, torch.float32)
    rounded = difference(BEFORE, AFTER, torch.bfloat16)
    assert rounded.dtype == torch.bfloat16
    assert rounded.flatten().tolist() == [0.0, 2.0**-13, 0.0, pytest.approx(5e-6, rel=2**-8)]
    counts = [(u.zeros, u.within, u.entries) for u in (measure("w", d, 1e-5, rank=False) for d in (exact, rounded))]
    assert counts == [(1, 2, 4), (2, 3, 4)]


def test_the_bound_itself_is_within() -> None:
    delta = torch.tensor([0.25, -0.25, 0.2500001])
    assert measure("w", delta, 0.25, rank=False).within == 2


@pytest.mark.parametrize(
    ("delta", "ratio"),
    [
        (torch.outer(torch.tensor([1.0, 2.0, 3.0]), torch.tensor([1.0, -1.0, 0.5, 2.0])), 1 / 3),
        (torch.zeros(3, 4), 0.0),
        (torch.eye(4), 1.0),
        (torch.diag(torch.tensor([1.0, 1e-3, 1e-9])), 2 / 3),
        (torch.eye(4).bfloat16(), 1.0),
        (torch.eye(6).reshape(6, 2, 3), 1.0),
    ],
)
def test_rank_over_the_shorter_side(delta: Tensor, ratio: float) -> None:
    assert rank_ratio(delta) == pytest.approx(ratio)


def test_vectors_and_norms_have_no_rank() -> None:
    assert measure("a.bias", torch.ones(3), 0.0, rank=True).rank_ratio is None
    assert measure("input_layernorm.weight", torch.ones(3, 3), 0.0, rank=True).rank_ratio is None
    assert measure("w", torch.ones(3, 3), 0.0, rank=False).rank_ratio is None


def test_density_and_sparsity_are_named_rightly_and_weighed(monkeypatch: pytest.MonkeyPatch) -> None:
    """One layer of two tensors: a matrix of 4 with half changed, a vector of 2 with all changed."""
    before = {"m.layers.0.w": torch.zeros(2, 2), "m.layers.0.b": torch.zeros(2), "m.norm": torch.ones(4)}
    after = {"m.layers.0.w": torch.tensor([[1.0, 0.0], [0.0, 1.0]]), "m.layers.0.b": torch.ones(2)}
    after["m.norm"] = torch.ones(4)
    found = Sparsity().examine(*subjects(monkeypatch, before=before, after=after)).values["dtypes"]["float32"]
    assert found["sparsity"] == found["unchanged"] == 6 / 10
    assert found["layers"]["m.layers.0"] == {"density": 0.75, "sparsity": 0.25}  # mean of 1/2 and 1, tensors alike
    assert found["layers"]["m.norm"] == {"density": 0.0, "sparsity": 1.0}
    assert found["rank_ratio"] == 1.0 and found["norm"] == 2.0
    assert [t["sparsity"] for t in found["tensors"]] == [0.5, 0.0, 1.0]
    assert ROWS == (5,)


def test_what_rounding_hides_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    finding = Sparsity(rank=False).examine(*subjects(monkeypatch, a={"w": BEFORE}, b={"w": AFTER}))
    assert finding.values["rounded_away"] == 1 / 4  # 0.02 to 0.02002
    assert {d: f["unchanged"] for d, f in finding.values["dtypes"].items()} == {"bfloat16": 0.5, "float32": 0.25}
    assert "25.00% of the weights moved in float32 and are the same number in bfloat16" in finding.lines[-1]


def test_the_mask_is_of_the_first_type(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for dtypes, expected in ((("bfloat16",), [0, 1, 0, 1]), (("float32", "bfloat16"), [1, 1, 0, 1])):
        path = tmp_path / f"{dtypes[0]}.safetensors"
        diagnostic = Sparsity(rank=False, dtypes=dtypes, mask=str(path))
        diagnostic.examine(*subjects(monkeypatch, a={"w": BEFORE}, b={"w": AFTER}))
        assert load_file(path)["w"].flatten().tolist() == expected


@pytest.mark.parametrize("mask", ["mask.txt", "nowhere/mask.safetensors"])
def test_a_mask_without_a_place_is_refused(monkeypatch: pytest.MonkeyPatch, mask: str) -> None:
    with pytest.raises(UserError, match=r"name a .safetensors file in a folder that is there"):
        Sparsity(mask=mask).examine(*subjects(monkeypatch, a={"w": BEFORE}, b={"w": AFTER}))


def test_models_of_other_shapes_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match=r"a has a tensor 'w' and b has none"):
        Sparsity().examine(*subjects(monkeypatch, a={"w": BEFORE}, b={}))
    with pytest.raises(UserError, match=r"tensor 'w' is \[2, 2\] in a and \[4\] in b"):
        Sparsity().examine(*subjects(monkeypatch, a={"w": BEFORE}, b={"w": AFTER.flatten()}))


@pytest.mark.slow
def test_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    """A tied matrix counts once; other random weights share none but the norms, which all begin at one."""
    monkeypatch.chdir(tmp_path)
    for seed in (1, 2):
        new_folder(Path(f"m{seed}"), layers=1, width=32, heads=2, kv_heads=1, context=64, seed=seed)
    assert main(["diagnose", "sparsity", "m1", "m2", "rank=false", "--json"]) == 0
    found = json.loads(capfd.readouterr().out)
    names = [tensor["name"] for tensor in found["dtypes"]["float32"]["tensors"]]
    assert "model.embed_tokens.weight" in names and "lm_head.weight" not in names
    assert (found["kind"], found["before"], found["after"]) == ("sparsity", "m1", "m2")
    norms = sum(t["entries"] for t in found["dtypes"]["float32"]["tensors"] if "norm" in t["name"])
    assert found["dtypes"]["float32"]["unchanged"] == pytest.approx(norms / found["parameters"])
    assert main(["diagnose", "sparsity", "m1"]) == 2
    assert "sparsity takes 2 model(s), BEFORE, AFTER; got 1: m1" in capfd.readouterr().err
    assert main(["diagnose", "sparsity", "m1", "m2", "tolerence=1"]) == 2
    assert "did you mean 'tolerance'?" in capfd.readouterr().err
    assert main(["diagnose", "sparsity", "m1", "m2", "tolerance=-1"]) == 2
    assert "sparsity.tolerance: Input should be greater than or equal to 0, got -1" in capfd.readouterr().err
    assert main(["diagnose", "sparsely", "m1", "m2"]) == 2
    assert "no diagnostic named 'sparsely'; did you mean 'sparsity'?" in capfd.readouterr().err
