"""Keeps the demonstrations of groups with a low success rate, and the rollouts of all others.

Source: the gate of HPT, Lv et al. 2025, arXiv:2509.04419: with P the share of correct rollouts of a task, P <= gamma
learns from the demonstration and not from the rollouts, P > gamma from the rollouts and not from the demonstration.

Differs: a group without a demonstration, of which the paper's data has none, keeps its rollouts.
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
    """Drops the rollouts of groups with few correct ones, and the demonstrations of the others."""

    threshold: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.0
    """gamma: largest share of correct rollouts at which a task is learned from its demonstration (0 in the paper for
    Qwen2.5-Math, 0.25 for Llama-3.1-8B)."""

    def __call__(self, state: State, groups: Sequence[Group]) -> tuple[State, list[Group], list[Dropped]]:
        """Split every group that has both."""
        kept, dropped = [], []
        for group in groups:
            demonstrations = tuple(t for t in group if t.demonstrated)
            own = tuple(t for t in group if not t.demonstrated)
            if not (demonstrations and own):
                kept.append(group)
                continue
            imitate = group.solved <= self.threshold
            keep, drop = (demonstrations, own) if imitate else (own, demonstrations)
            reason = f"{group.solved:.0%} of the rollouts are correct: " + (
                "the demonstration is imitated" if imitate else "the demonstration is not needed"
            )
            kept.append(replace(group, trajectories=keep))
            dropped.append(Dropped(group=replace(group, trajectories=drop), reason=reason))
        return state, kept, dropped
