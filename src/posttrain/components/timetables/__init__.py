"""Timetables: which weights the rollouts of a step are sampled with.

Contract: decided by the numbers of steps, never by a clock, so that a run repeats and resumes bit for bit, on any
machine. Rollouts of the first steps are sampled with the first weights.
"""

from posttrain.component import Component


class Timetable(Component):
    """When the rollouts of a step are sampled."""

    @property
    def ahead(self) -> int:
        """k: step s is sampled with the weights that step s - 1 - k left."""
        raise NotImplementedError
