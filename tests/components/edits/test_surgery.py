"""Surgery: the probe, the ranking by hand, the controls of equal size, and the edge cases."""

import pytest
import torch

from posttrain.components.edits.surgery import Surgery
from posttrain.errors import UserError


def texts(count: int = 60, width: int = 4) -> tuple[torch.Tensor, torch.Tensor]:
    """States whose second number has the sign of the label."""
    generator = torch.Generator().manual_seed(3)
    label_N = torch.arange(count) % 2
    states_ND = 0.1 * torch.randn(count, width, generator=generator)
    states_ND[:, 1] += 2.0 * label_N - 1.0
    return states_ND, label_N


MATRICES = {
    "a": torch.tensor([[0.0, -1.0, 0.0, 0.0], [0.0, 2.0, 0.0, 0.0], [1.0, 0.0, 0.0, 0.0]]),
    "b": torch.tensor([[0.0, -3.0, 0.3, 0.0], [0.0, 0.0, 0.0, 1.0], [0.0, 0.0, 0.0, 0.0]]),
}
EDIT = Surgery(share=1 / 3, lr=0.01, epochs=200)


@pytest.mark.slow
def test_the_rows_most_against_the_probe() -> None:
    """In one ranking over both matrices, whatever their norms; each gets alpha mean norms of a row."""
    plan = EDIT.plan(*texts(), MATRICES)
    assert {name: rows.tolist() for name, rows in plan.rows.items()} == {"a": [0], "b": [0]}
    assert plan.report["probe_accuracy"] == plan.report["probe_accuracy_trained"] == 1.0
    mean_norm = (1 + 2 + 1 + (9.09**0.5) + 1 + 0) / 6
    assert float(plan.step_D.norm()) == pytest.approx(mean_norm, rel=1e-5)
    assert int(plan.step_D.abs().argmax()) == 1 and plan.step_D[1] > 0
    assert plan.count == 2 and plan.report["step_over_row"] == pytest.approx(1.0)


def test_in_units_of_the_probe() -> None:
    from dataclasses import replace

    probe_2D, _ = EDIT.probe(*texts())
    plan = replace(EDIT, unit="probe", alpha=-2.0).plan(*texts(), MATRICES)
    assert torch.allclose(plan.step_D, -2.0 * probe_2D[1])


@pytest.mark.slow
def test_controls_are_of_equal_size() -> None:
    plan = EDIT.plan(*texts(), MATRICES)
    found = {name: control.plan(*texts(), MATRICES) for name, control in EDIT.controls.items()}
    for control in found.values():
        assert control.count == plan.count
        assert float(control.step_D.norm()) == pytest.approx(float(plan.step_D.norm()), rel=1e-5)
    assert 1 in found["aligned rows"].rows["a"].tolist()
    assert not torch.allclose(found["random direction"].step_D, plan.step_D)
    assert torch.equal(found["random rows"].step_D, plan.step_D)


def test_edge_cases() -> None:
    assert torch.equal(EDIT.at(0.0).plan(*texts(), MATRICES).step_D, torch.zeros(4))
    everything = Surgery(share=1.0).plan(*texts(), MATRICES)
    assert everything.count == 6 and everything.report["of"] == 6
    states_ND, label_N = texts()
    with pytest.raises(UserError, match="there are 60 texts, 0 of them with label 1"):
        EDIT.plan(states_ND, torch.zeros_like(label_N), MATRICES)
    with pytest.raises(UserError, match="there are 4 texts"):
        EDIT.plan(states_ND[:4], label_N[:4], MATRICES)


def test_a_zero_probe_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Surgery, "probe", lambda self, states, labels: (torch.zeros(2, 4), {}))
    for unit in ("row", "probe"):
        plan = Surgery(unit=unit).plan(*texts(), MATRICES)  # type: ignore[arg-type]
        assert not plan.step_D.any() and plan.report["mean_cosine"] == 0.0
