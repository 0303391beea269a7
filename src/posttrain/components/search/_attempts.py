"""The pieces that every search is made of."""

import asyncio
from collections.abc import Mapping, Sequence

import numpy as np

from posttrain import engines
from posttrain.components.rollouts import Judge
from posttrain.components.search import Found, State, place_of_best
from posttrain.engines import Sampler
from posttrain.errors import UserError
from posttrain.types import Group, IntArray, Task, Trajectory


def sampler_of(role: str, samplers: Mapping[str, Sampler]) -> Sampler:
    """The sampler of a role. Raises `UserError` for a role that no model plays."""
    hint = f". Name one with models.{role}.source=FOLDER, with head: reward if it is to give values"
    return engines.sampler_of(role, samplers, "the search asks", hint)


class Values:
    """What a value model says, clipped to [0, 1] where it is not to be left as it is; the same tokens are read once."""

    def __init__(self, sampler: Sampler, *, clipped: bool = True) -> None:
        """`sampler` is that of a model with a reward head, or a value head."""
        self._sampler, self._clipped = sampler, clipped
        self._known: dict[bytes, float] = {}

    async def __call__(self, sequences: Sequence[IntArray]) -> list[float]:
        """The value of each sequence. Raises `UserError` for a model that gives no number."""
        names = [np.ascontiguousarray(ids, np.int64).tobytes() for ids in sequences]
        new = {name: ids for name, ids in zip(names, sequences, strict=True) if name not in self._known}
        said = await asyncio.gather(*(self._sampler.score(ids) for ids in new.values()))
        if not np.isfinite(said).all():
            raise UserError("the value model gives a value that is not a number; it has to be trained again")
        kept = np.clip(said, 0.0, 1.0) if self._clipped else np.asarray(said, np.float64)
        self._known |= dict(zip(new, kept.tolist(), strict=True))
        return [self._known[name] for name in names]


async def judged(task: Task, attempts: Sequence[Trajectory], judge: Judge | None) -> tuple[Trajectory, ...]:
    """The attempts with their scores. Raises `UserError` where there is nothing to judge by."""
    if judge is None:
        raise UserError(
            "this search learns from rewards how good a state is, so it makes data and cannot answer; for answers "
            "give it a value model: value_role=value"
        )
    return (await judge(Group(key=task.key, trajectories=tuple(attempts)))).trajectories


def found(
    attempts: Sequence[Trajectory], values: Sequence[float], states: Sequence[State] = (), **statistics: float
) -> Found:
    """What was found, with the statistics that every search has."""
    segments = {id(s): len(s) for t in attempts for s in t.segments if s.actor != "prompt"}
    shared = {
        "attempts": len(attempts),
        "sampled_tokens": sum(segments.values()),
        "best_after": place_of_best(values) + 1,
    }
    return Found(
        attempts=tuple(attempts),
        values=tuple(values),
        states=tuple(states),
        statistics={name: float(number) for name, number in {**shared, **statistics}.items()},
    )
