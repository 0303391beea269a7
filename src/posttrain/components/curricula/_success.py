"""What counts as success of a task's rollouts. Rollouts whose scoring failed are neither right nor wrong."""

from collections.abc import Iterable, Sequence
from typing import Annotated

from pydantic import Field

from posttrain.component import nearest
from posttrain.errors import UserError
from posttrain.types import Group, Trajectory, value_of

Success = Annotated[str, Field(pattern=r"^(solved|one|reward|part:.+)$")]
"""``solved``: the share of rollouts that the reward calls correct. ``one``: that of rewards of at least 1. ``reward``:
the mean reward. ``part:NAME``: the share in which a part of the reward is correct, such as accuracy without format."""


def scored_of(groups: Iterable[Group]) -> dict[str, list[Trajectory]]:
    """The rollouts that could be scored, by the key of their task."""
    found: dict[str, list[Trajectory]] = {}
    for group in groups:
        for trajectory in group:
            if trajectory.score is not None and trajectory.score.status != "error":
                found.setdefault(trajectory.task.key, []).append(trajectory)
    return found


def success_of(trajectories: Sequence[Trajectory], how: Success) -> float:
    """The success rate of scored rollouts, at least one; a mean reward may be outside [0, 1]."""
    if how == "reward":
        return sum(map(value_of, trajectories)) / len(trajectories)
    if how == "one":
        return sum(value_of(t) >= 1.0 for t in trajectories) / len(trajectories)
    if how == "solved":
        return sum(t.solved for t in trajectories) / len(trajectories)
    return sum(_part(t, how.removeprefix("part:")) for t in trajectories) / len(trajectories)


def _part(trajectory: Trajectory, name: str) -> bool:
    """Whether a part of the score is correct. Raises `UserError` for a name that the reward does not have."""
    assert trajectory.score is not None, "only scored rollouts"
    parts = trajectory.score.parts
    if name not in parts:
        raise UserError(
            f"curriculum.success names the part '{name}', but the reward has no such part; {nearest(name, parts)}"
        )
    return parts[name].status == "ok"
