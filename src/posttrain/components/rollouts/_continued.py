"""Episodes that may have begun in an earlier process."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

from posttrain.components.environments import EpisodeChanged
from posttrain.components.rollouts._recorded import Record
from posttrain.engines import Recalling, Sampler

T = TypeVar("T")


def record_of(sampler: Sampler) -> Record:
    """What the environment of a rollout answered so far, to be added to."""

    def name() -> str:
        drawn = sampler.bind("episode")
        return f"{drawn.uniform().hex()} {drawn.uniform().hex()}"

    return Record(sampler.recall() if isinstance(sampler, Recalling) else None, name)


async def continued(sampler: Sampler, play: Callable[[Sampler], Awaitable[T]]) -> T:
    """Play an episode; where its environment does not answer what the record has, play it anew from its key."""
    while True:
        try:
            return await play(sampler)
        except EpisodeChanged:
            if isinstance(sampler, Recalling):
                sampler.forget()
            sampler = sampler.bind()
