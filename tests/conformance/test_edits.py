"""Laws of every edit."""

import pytest
import torch

from posttrain.components.edits import Edit
from tests.conformance._members import members

every_member = pytest.mark.parametrize("member", members(Edit))


def given() -> tuple[torch.Tensor, torch.Tensor, dict[str, torch.Tensor]]:
    generator = torch.Generator().manual_seed(0)
    matrices = {name: torch.randn(20, 6, generator=generator) for name in ("a", "b")}
    return torch.randn(40, 6, generator=generator), torch.arange(40) % 2, matrices


@every_member
def test_a_plan_is_a_function_of_what_it_reads_and_writes_nothing(member: Edit) -> None:
    states, labels, matrices = given()
    plan = member.plan(states, labels, matrices)
    again = member.plan(*given())
    assert torch.equal(plan.step_D, again.step_D) and plan.rows.keys() == again.rows.keys() == matrices.keys()
    assert all(torch.equal(rows, again.rows[name]) for name, rows in plan.rows.items())
    old = given()
    assert torch.equal(states, old[0]) and all(torch.equal(m, old[2][name]) for name, m in matrices.items())
    for name, rows in plan.rows.items():
        assert len(set(rows.tolist())) == len(rows) and all(0 <= row < len(matrices[name]) for row in rows.tolist())


@every_member
def test_strength_zero_changes_nothing_and_the_sign_turns(member: Edit) -> None:
    assert not member.at(0.0).plan(*given()).step_D.any()
    plus, minus = (member.at(sign).plan(*given()).step_D for sign in (1.0, -1.0))
    assert plus.any() and torch.equal(plus, -minus)


@every_member
def test_controls_have_its_size(member: Edit) -> None:
    plan = member.plan(*given())
    for control in member.controls.values():
        other = control.plan(*given())
        assert other.count == plan.count and torch.allclose(other.step_D.norm(), plan.step_D.norm(), rtol=1e-5)
