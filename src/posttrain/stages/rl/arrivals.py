"""Where the rollouts of a stage come from, by the timetable of the recipe."""

from posttrain.stages.rl.ahead import Ahead, Arrivals
from posttrain.stages.rl.collecting import Collecting
from posttrain.stages.rl.stream import Replayed, Stream


def arrivals(collecting: Collecting) -> Arrivals:
    """Step by step, some steps ahead, or as they end; those of a journal where the run has one."""
    context, memory = collecting.context, collecting.memory
    if context.streams is None:
        return Ahead(memory, context.tasks, context.ahead, collecting.steps, collecting.begin, collecting.overlaps)
    if context.replayed is not None:
        return Replayed(collecting, context.streams, context.replayed)
    return Stream(collecting, context.streams)
