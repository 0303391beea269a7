"""Stored turns: what a policy wrote in earlier rollouts, from which off-policy training draws.

An episode is stored once, with the place of each turn in its ids: the context of a turn is all before it. Each turn has
the log-probabilities with which it was sampled, its reward, and whether the episode ended after it. The number of turns
is bounded, and the oldest episodes are dropped first. All of it is JSON in the memory of a stage, so that a resumed run
draws the same turns.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from posttrain.stages.memory import array_of, packed_array
from posttrain.types import FloatArray, IntArray, Trajectory


@dataclass(frozen=True, kw_only=True)
class StoredTurn:
    """One turn of an earlier rollout."""

    task: str
    """Key of the task."""
    context: IntArray
    """[S] ids before the turn."""
    action: IntArray
    """[A] ids of the turn."""
    logp: FloatArray
    """[A] log-probability of each when it was sampled; NaN for a given turn."""
    reward: float
    """That of the turn, and for the last turn the score of the rollout as well."""
    following: IntArray | None
    """[S'] ids before the next turn; None where the episode ended."""
    source: str
    """Who wrote it: a role, or ``demonstration``."""


@dataclass(kw_only=True)
class StoredTurns:
    """The last episodes, of `capacity` turns at most."""

    capacity: int
    packed: list[dict[str, Any]] = field(default_factory=list)
    """The episodes as JSON, the oldest first. Changed in place."""

    def __post_init__(self) -> None:
        """Read what a checkpoint had."""
        self._episodes = [_unpacked(episode) for episode in self.packed]
        self._places = [(e, t) for e, turns in enumerate(self._episodes) for t in range(len(turns))]

    def __len__(self) -> int:
        """Number of turns."""
        return len(self._places)

    def add(self, trajectories: Iterable[Trajectory]) -> None:
        """Store the turns of scored rollouts. A rollout without a score is left out."""
        for trajectory in trajectories:
            if trajectory.score is None or trajectory.score.status == "error":
                continue
            episode = _packed(trajectory)
            if episode["turns"]:
                self.packed.append(episode)
                self._episodes.append(_unpacked(episode))
        total = sum(map(len, self._episodes))
        while total > self.capacity and len(self._episodes) > 1:
            total -= len(self._episodes.pop(0))
            self.packed.pop(0)
        self._places = [(e, t) for e, turns in enumerate(self._episodes) for t in range(len(turns))]

    def draw(self, count: int, rng: np.random.Generator) -> list[StoredTurn]:
        """`count` turns, drawn with replacement."""
        places = rng.integers(len(self._places), size=count)
        return [self._episodes[e][t] for e, t in (self._places[place] for place in places.tolist())]


def _packed(trajectory: Trajectory) -> dict[str, Any]:
    """The turns of a rollout as JSON: begin and end of each in the ids, its reward, its source."""
    turns: list[list[Any]] = []
    logp: list[FloatArray] = []
    place = 0
    for segment in trajectory.segments:
        if segment.trained and len(segment):
            known = segment.logp if segment.logp is not None else np.full(len(segment), np.nan, np.float32)
            logp.append(np.asarray(known, np.float32))
            turns.append([place, place + len(segment), float(segment.reward or 0.0), segment.actor])
        place += len(segment)
    if turns:
        assert trajectory.score is not None, "a stored rollout is scored"
        turns[-1][2] += trajectory.score.value
    return {
        "task": trajectory.task.key,
        "ids": packed_array(np.asarray(trajectory.token_ids, np.int32)),
        "logp": packed_array(np.concatenate(logp) if logp else np.zeros(0, np.float32)),
        "turns": turns,
    }


def _unpacked(episode: Mapping[str, Any]) -> list[StoredTurn]:
    """The turns of `_packed`."""
    ids, logp = np.asarray(array_of(episode["ids"]), np.int64), array_of(episode["logp"])
    found, used = [], 0
    for place, (begin, end, reward, source) in enumerate(episode["turns"]):
        later = episode["turns"][place + 1 :]
        found.append(
            StoredTurn(
                task=episode["task"],
                context=ids[:begin],
                action=ids[begin:end],
                logp=logp[used : used + end - begin],
                reward=reward,
                following=ids[: later[0][0]] if later else None,
                source=source,
            )
        )
        used += end - begin
    return found
