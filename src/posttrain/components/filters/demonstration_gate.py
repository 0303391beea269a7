"""Imitate where the policy fails, explore where it succeeds: keeps a group's demonstrations or its attempts.

Source: the gate of HPT, Lv et al. 2025, arXiv:2509.04419: with P the share of right attempts at a task, P <= gamma
learns from the demonstration and not from the attempts, P > gamma from the attempts and not from the demonstration.

Differs: a group without a demonstration, of which the paper's data has none, keeps its attempts.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated

from pydantic import Field

from posttrain.component import frozen
from posttrain.components.filters import Dropped, Filter, State
from posttrain.types import Group


@frozen
class DemonstrationGate(Filter):
    """Drops the attempts of groups with few right ones, and the demonstrations of the others."""

    threshold: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.0
    """gamma: largest share of right attempts at which a task is learned from its demonstration (0 in the paper for
    Qwen2.5-Math, 0.25 for Llama-3.1-8B)."""

    def __call__(self, state: State, groups: Sequence[Group]) -> tuple[State, list[Group], list[Dropped]]:
        """Split every group that has both."""
        kept, dropped = [], []
        for group in groups:
            taught = tuple(t for t in group if t.demonstrated)
            own = tuple(t for t in group if not t.demonstrated)
            if not (taught and own):
                kept.append(group)
                continue
            imitate = group.solved <= self.threshold
            keep, drop = (taught, own) if imitate else (own, taught)
            reason = f"{group.solved:.0%} of the attempts are right: " + (
                "the demonstration is imitated" if imitate else "the demonstration is not needed"
            )
            kept.append(replace(group, trajectories=keep))
            dropped.append(Dropped(group=replace(group, trajectories=drop), reason=reason))
        return state, kept, dropped
