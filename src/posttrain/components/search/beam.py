r"""Beam search over lines, guided by a value model.

Source: the step-level beam search of OREO, Wang et al. 2024, arXiv:2412.16145, and its released code
(github.com/jwhj/OREO). Each of K prefixes is continued by K sampled lines at temperature 1, and the K with the highest
value are kept, for up to 20 rounds. The answer is the complete rollout with the highest value (K = 3).

The values are a critic's, of the state after a line. For a complete rollout it is the state before its end token, the
last one that a critic is trained on. They are not clipped. A model with a reward head works as well.

Differs: the prompt is a single prefix, so the first round samples as many lines from it as later rounds do in all.
Prefixes of the same tokens are merged. A rollout that ends in a round is kept even if it is not among the K best; ended
and open prefixes are ranked together for the K that are continued. Prefixes that are still open after the last round
are rollouts only if none has ended.
"""

import asyncio
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated

import numpy as np
from pydantic import Field, PositiveInt, field_validator
from pydantic_core import PydanticCustomError

from posttrain.component import frozen
from posttrain.components.rollouts import Scorer
from posttrain.components.search import Found, Search
from posttrain.components.search._found import Values, found, sampler_of
from posttrain.engines import Sampler, Sampling, sampled_segment
from posttrain.signals import Signal
from posttrain.types import Completion, IntArray, Segment, StopReason, Task, Trajectory


@dataclass(frozen=True, kw_only=True)
class Path:
    """A prefix of a rollout, or a complete one."""

    segments: tuple[Segment, ...]
    """The prompt, then the lines so far."""
    ended: StopReason | None = None
    """Why it ended; None for a prefix that can be continued."""
    value: float = math.nan

    @property
    def token_ids(self) -> IntArray:
        """Token ids, prompt included."""
        return np.concatenate([s.token_ids for s in self.segments])

    @property
    def written(self) -> int:
        """Number of tokens after the prompt."""
        return sum(map(len, self.segments[1:]))


@frozen
class Beam(Search):
    """Keeps the `width` best prefixes, line by line."""

    width: PositiveInt = 3
    """K: prefixes that are kept in a round."""
    samples: PositiveInt = 3
    """Lines that are sampled after each of them."""
    rounds: PositiveInt = 20
    """Most lines of a rollout."""
    delimiter: Annotated[str, Field(min_length=1)] = "\n"
    """What ends a line."""
    value_role: str = "value"
    """The model with a value head or a reward head that ranks prefixes and rollouts."""
    sampling: Sampling = Sampling()
    """How lines are sampled; `max_tokens` limits a whole rollout. Stop strings are not allowed."""
    role: str = "policy"
    """The model that is sampled from."""

    @field_validator("sampling")
    @classmethod
    def refuse_stop_strings(cls, sampling: Sampling) -> Sampling:
        """Refuse stop strings, which cannot be distinguished from the end of a line."""
        if sampling.stop:
            raise PydanticCustomError("stop", "the delimiter is the stop string of a beam; use stop_token_ids")
        return sampling

    @property
    def roles(self) -> frozenset[str]:
        """The sampled model and the value model."""
        return frozenset((self.role, self.value_role))

    @property
    def needs(self) -> frozenset[Signal]:
        """The value model's scores of states."""
        return frozenset({Signal("score", of=self.value_role)})

    @property
    def uses_rewards(self) -> bool:
        """False: it is guided by values."""
        return False

    @property
    def temperature(self) -> float:
        """Sampling temperature; log-probabilities of greedy tokens are at temperature 1."""
        return self.sampling.temperature or 1.0

    async def search(self, task: Task, samplers: Mapping[str, Sampler], scorer: Scorer | None = None) -> Found:
        """Continue prefixes until all have ended, or for the given number of rounds."""
        sampler = sampler_of(self.role, samplers)
        values = Values(sampler_of(self.value_role, samplers), clipped=False)
        open_ones, ended = [Path(segments=(sampler.prompt(task),))], list[Path]()
        number = self.width * self.samples
        lines = tokens = rounds = 0
        while open_ones and rounds < self.rounds:
            written = await asyncio.gather(*(self._grow(path, number, sampler) for path in open_ones))
            grown = [path for paths in written for path in paths]
            lines, tokens = lines + len(grown), tokens + sum(len(path.segments[-1]) for path in grown)
            ranked = await _ranked(grown, values)
            ended += [path for path in ranked if path.ended]
            open_ones = [path for path in ranked[: self.width] if not path.ended]
            number, rounds = self.samples, rounds + 1
        whole = ended or [replace(path, ended="length") for path in open_ones]
        rollouts = [_rollout(task, path, i) for i, path in enumerate(whole)]
        return found(rollouts, [p.value for p in whole], sampled_tokens=tokens, lines=lines, rounds=rounds)

    async def _grow(self, path: Path, number: int, sampler: Sampler) -> list[Path]:
        """Sample `number` lines after a prefix."""
        before = path.token_ids
        # The sampler refuses a prompt that leaves no room.
        room = max(1, self._room(path, sampler))
        sampling = replace(self.sampling, max_tokens=room, stop=(self.delimiter,))
        completions = await sampler.sample(before, number, sampling, path.segments[0].vectors)
        return [self._after(path, completion, sampler) for completion in completions]

    def _after(self, path: Path, completion: Completion, sampler: Sampler) -> Path:
        """A prefix with one more line. It ends there unless the delimiter ended the line."""
        before = np.concatenate([np.zeros(0, np.int64), *(s.token_ids for s in path.segments[1:])])
        text = sampler.decode(np.concatenate([before, completion.token_ids]))
        own = sampler.decode(completion.token_ids)
        ended: StopReason | None = None if self.delimiter in own else completion.stop_reason
        if ended == "stop":
            text = text[: len(text) - (len(own) - len(completion.text))]
        own = text[sum(len(s.text) for s in path.segments[1:]) :]
        line = replace(sampled_segment(completion, self.role), text=own)
        grown = Path(segments=(*path.segments, line), ended=ended)
        return replace(grown, ended=ended or (None if self._room(grown, sampler) > 0 else "length"))

    def _room(self, path: Path, sampler: Sampler) -> int:
        """Number of tokens that may follow."""
        return min(self.sampling.max_tokens - path.written, sampler.context - len(path.token_ids))


async def _ranked(grown: Sequence[Path], values: Values) -> list[Path]:
    """Distinct prefixes by falling value; equals stay in their order."""
    different = list({path.token_ids.tobytes(): path for path in reversed(grown)}.values())[::-1]
    scores = await values([path.token_ids for path in different])
    valued = [replace(path, value=value) for path, value in zip(different, scores, strict=True)]
    return sorted(valued, key=lambda path: -path.value)


def _rollout(task: Task, path: Path, sample: int) -> Trajectory:
    """A path as a trajectory."""
    assert path.ended is not None, "open prefixes are ended before"
    return Trajectory(task=task, segments=path.segments, stop_reason=path.ended, sample=sample)
