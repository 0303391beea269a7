"""Edits: changes of a few rows of a model's weights, planned from its hidden states, without a gradient through it.

Contract: a plan is a function of the settings, the states, the labels and the weights, which are only read. The rows of
all matrices are changed by one step, so that an edit is undone by putting the original rows back.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

from posttrain.component import Component
from posttrain.errors import UserError

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What an edit will change."""

    rows: "Mapping[str, torch.Tensor]"
    """By matrix, int64 the rows that are changed; none for matrices that are not."""
    step_D: "torch.Tensor"
    """[D] what is added to each of them."""
    report: Mapping[str, Any] = field(default_factory=dict)
    """Numbers about the plan, as JSON."""

    @property
    def count(self) -> int:
        """Number of changed rows."""
        return sum(len(rows) for rows in self.rows.values())


class Edit(Component):
    """Plans which rows to change, and by what."""

    def plan(self, states_ND: "torch.Tensor", label_N: "torch.Tensor", matrices: "Mapping[str, torch.Tensor]") -> Plan:
        """A plan from states of texts (label 1: the behaviour to avoid) and the matrices [rows, D] it may change."""
        raise NotImplementedError

    def at(self, strength: float) -> Self:
        """The same with this strength, for a sweep; 0 changes nothing, and a negative one has the opposite sign."""
        raise UserError(f"the edit '{self.kind}' has no strength to sweep")

    @property
    def controls(self) -> Mapping[str, Self]:
        """By name, edits of equal size that should not have the effect."""
        return {}
