"""Keeps groups with correct and incorrect rollouts; drops those that are all correct or all incorrect.

Source: DUPO of WebSailor, arXiv:2507.02592, section 4: 0 < number of correct answers < G. The rule is about
correctness, not about rewards: a group without a correct answer is dropped even where formats, and with them rewards,
differ.
"""

from collections.abc import Sequence

from posttrain.component import frozen
from posttrain.components.filters import Dropped, Filter, State
from posttrain.types import Group


@frozen
class Mixed(Filter):
    """Keeps groups with both outcomes."""

    @property
    def needs_several(self) -> bool:
        """True."""
        return True

    def __call__(self, state: State, groups: Sequence[Group]) -> tuple[State, list[Group], list[Dropped]]:
        """Split by the number of correct rollouts."""
        kept, dropped = [], []
        for group in groups:
            solved = sum(t.solved for t in group)
            if 0 < solved < len(group):
                kept.append(group)
            else:
                dropped.append(Dropped(group=group, reason=f"{solved} of {len(group)} rollouts are correct"))
        return state, kept, dropped
