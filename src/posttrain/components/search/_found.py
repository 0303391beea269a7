"""What searches share: values of sequences, scores, and their result."""

import asyncio
from collections.abc import Mapping, Sequence

import numpy as np

from posttrain import engines
from posttrain.components.rollouts import Scorer
from posttrain.components.search import Found, State, place_of_best
from posttrain.engines import Sampler
from posttrain.errors import UserError
from posttrain.types import Group, IntArray, Task, Trajectory


def sampler_of(role: str, samplers: Mapping[str, Sampler]) -> Sampler:
    """The sampler of a role. Raises `UserError` for a role without a model."""
    hint = f". Name one with models.{role}.source=FOLDER, with head: reward for a model that gives values"
    return engines.sampler_of(role, samplers, "the search uses", hint)


class Values:
    """Values of sequences by a value model, clipped to [0, 1] unless `clipped` is false; each sequence is read once."""

    def __init__(self, sampler: Sampler, *, clipped: bool = True) -> None:
        """`sampler` is bound to a model with a reward head or a value head."""
        self._sampler, self._clipped = sampler, clipped
        self._known: dict[bytes, float] = {}

    async def __call__(self, sequences: Sequence[IntArray]) -> list[float]:
        """The value of each sequence. Raises `UserError` for a model that gives no number."""
        names = [np.ascontiguousarray(ids, np.int64).tobytes() for ids in sequences]
        new = {name: ids for name, ids in zip(names, sequences, strict=True) if name not in self._known}
        values = await asyncio.gather(*(self._sampler.score(ids) for ids in new.values()))
        if not np.isfinite(values).all():
            raise UserError("the value model gives a value that is not a number; it has to be trained again")
        kept = np.clip(values, 0.0, 1.0) if self._clipped else np.asarray(values, np.float64)
        self._known |= dict(zip(new, kept.tolist(), strict=True))
        return [self._known[name] for name in names]


async def scored(task: Task, rollouts: Sequence[Trajectory], scorer: Scorer | None) -> tuple[Trajectory, ...]:
    """The rollouts with their scores. Raises `UserError` without a scorer."""
    if scorer is None:
        raise UserError(
            "this search is guided by the reward, so it makes training data and cannot answer held-out tasks; give it "
            "a value model: value_role=value"
        )
    return (await scorer(Group(key=task.key, trajectories=tuple(rollouts)))).trajectories


def found(
    rollouts: Sequence[Trajectory], values: Sequence[float], states: Sequence[State] = (), **statistics: float
) -> Found:
    """The result of a search, with the statistics that all searches have."""
    segments = {id(s): len(s) for t in rollouts for s in t.segments if s.actor != "prompt"}
    shared = {
        "rollouts": len(rollouts),
        "sampled_tokens": sum(segments.values()),
        "best_after": place_of_best(values) + 1,
    }
    return Found(
        trajectories=tuple(rollouts),
        values=tuple(values),
        states=tuple(states),
        statistics={name: float(number) for name, number in {**shared, **statistics}.items()},
    )
