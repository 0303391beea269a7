"""Edits of rows in memory and in files: exactly these rows, and undone to the bit."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from posttrain.components.edits import Plan
from posttrain.errors import UserError
from posttrain.policies.editing import (
    KEPT_FILE,
    edited,
    gate_rows,
    matrices_of,
    mean_states,
    write_edited,
    write_undone,
)
from posttrain.policies.folder import new_folder, open_folder
from tests.policies.made_models import load

GATE = "model.layers.{}.mlp.gate_proj.weight"


def tiny(path: Path) -> Path:
    return new_folder(path, layers=2, width=32, heads=2, kv_heads=1, context=64)


def plan_of(*rows: tuple[int, list[int]], width: int = 32) -> Plan:
    step_D = 0.1 * torch.arange(width).float()
    return Plan(rows={GATE.format(layer): torch.tensor(own) for layer, own in rows}, step_D=step_D)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_files_change_in_these_rows_and_come_back(tmp_path: Path, dtype: torch.dtype) -> None:
    """Also where subtracting the step again would not give the old numbers."""
    source = tiny(tmp_path / "m")
    path = source / "model.safetensors"
    save_file({n: t.to(dtype) for n, t in load_file(path).items()}, path, metadata={"of": "somebody else"})
    plan = plan_of((0, [1, 5]), (1, [0]))
    write_edited(open_folder(source), plan, tmp_path / "out")
    old, new = load_file(path), load_file(tmp_path / "out" / "model.safetensors")
    for name, tensor in old.items():
        expected = tensor.clone()
        if name in plan.rows:
            rows = plan.rows[name]
            expected[rows] = (tensor[rows].double() + plan.step_D.double()).to(dtype)
        assert torch.equal(new[name], expected)
    assert write_undone(open_folder(tmp_path / "out"), tmp_path / "back") == 3
    assert (tmp_path / "back" / "model.safetensors").read_bytes() == path.read_bytes()
    assert sorted(p.name for p in (tmp_path / "back").iterdir()) == sorted(p.name for p in source.iterdir())
    with pytest.raises(UserError, match="is edited already"):
        write_edited(open_folder(tmp_path / "out"), plan, tmp_path / "twice")
    with pytest.raises(UserError, match=f"has no {KEPT_FILE}"):
        write_undone(open_folder(source), tmp_path / "never")


def test_in_memory_it_is_what_the_file_has_and_ends_with_the_block(tmp_path: Path) -> None:
    policy = load(tiny(tmp_path / "m"))
    before = {name: p.clone() for name, p in policy.named_parameters()}
    plan = plan_of((1, [3, 2]))
    write_edited(open_folder(tmp_path / "m"), plan, tmp_path / "out")
    stored = load_file(tmp_path / "out" / "model.safetensors")
    with edited(policy, plan):
        changed = {name.removeprefix("body."): p.clone() for name, p in policy.named_parameters()}
    assert all(torch.equal(changed[name], tensor) for name, tensor in stored.items())
    assert not torch.equal(changed[GATE.format(1)], before[f"body.{GATE.format(1)}"])
    assert all(torch.equal(p, before[name]) for name, p in policy.named_parameters())


def test_mean_states_are_those_of_each_text_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    policy = load(tiny(tmp_path / "m"))
    texts = [[1, 2, 3], [4], [5, 6, 7, 8, 9], [2, 2]]
    whole = mean_states(policy, texts)
    assert torch.allclose(whole, torch.cat([mean_states(policy, [text]) for text in texts]), atol=1e-5)
    monkeypatch.setattr("posttrain.policies.editing.PASS_TOKENS", 4)
    assert torch.allclose(mean_states(policy, texts), whole, atol=1e-5)


def test_which_matrices_are_gates(tmp_path: Path) -> None:
    assert list(matrices_of(load(tiny(tmp_path / "m")))) == [GATE.format(0), GATE.format(1)]
    assert gate_rows({"h.0.mlp.gate_up_proj.weight": (8, 4)}) == {"h.0.mlp.gate_up_proj.weight": 4}
    assert gate_rows({"l.experts.1.gate_proj.weight": (6, 4), "l.up_proj.weight": (6, 4)}) == {
        "l.experts.1.gate_proj.weight": 6
    }
    assert gate_rows({"l.up_proj.weight": (6, 4)}) == {"l.up_proj.weight": 6}
    with pytest.raises(UserError, match="has no gate and no up-projection"):
        gate_rows({"h.0.c_fc.weight": (4, 4)})
