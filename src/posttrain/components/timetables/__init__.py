"""Timetables: which weights the rollouts of a step are sampled with.

Contract: decided by numbers of steps and of tokens, not by a clock, so that a run repeats and resumes bit for bit, on
any machine. A setting may let a clock decide; then its journal gives the same weights again. Rollouts of the
first steps are sampled with the first weights.
"""

from dataclasses import dataclass
from typing import Literal

from posttrain.component import Component


@dataclass(frozen=True, kw_only=True)
class Streams:
    """How rollouts are sampled that go on over changes of the weights; the fields are settings of `streaming`."""

    eta: int
    """Steps that sampling may be ahead."""
    piece: int
    """Tokens that are sampled with the same weights."""
    learning: int
    """Pieces that are sampled beside each step."""
    running: int
    """Most groups in progress."""
    oldest: int | None
    """Most steps from the first token of a group to the step that learns from it."""
    too_old: Literal["drop", "wait"]
    """What is done about older ones."""
    filtered: Literal["batch", "group"]
    """What filters see."""
    order: Literal["tokens", "clock"]
    """What decides which group ends first."""
    caches: Literal["renewed", "kept"]
    """Whether keys and values of the tokens so far are those of the weights of each piece."""
    rejected: int
    """Batches of groups that may be rejected for one step."""


class Timetable(Component):
    """When the rollouts of a step are sampled."""

    @property
    def ahead(self) -> int:
        """k: step s is sampled with the weights that step s - 1 - k left."""
        raise NotImplementedError

    @property
    def overlaps(self) -> bool:
        """Whether samplers may begin a step while rollouts of the one before go on."""
        return False

    @property
    def streams(self) -> Streams | None:
        """How rollouts go on over changes of the weights; None where each has the weights of its start."""
        return None
