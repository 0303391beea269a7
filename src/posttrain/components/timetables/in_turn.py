"""Sample, then learn: every rollout is of the weights that it teaches."""

from posttrain.component import frozen
from posttrain.components.timetables import Timetable


@frozen
class InTurn(Timetable):
    """Step s is sampled with the weights of step s - 1."""

    @property
    def ahead(self) -> int:
        """None."""
        return 0
