"""Episodes that may have begun in an earlier process."""

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from posttrain.components.environments import EpisodeChanged
from posttrain.engines import Recalling, Sampler

T = TypeVar("T")


def record_of(sampler: Sampler) -> list[Any] | None:
    """What the environment of a rollout answered so far, to be added to; None where rollouts end in their process."""
    return sampler.recall() if isinstance(sampler, Recalling) else None


async def continued(sampler: Sampler, play: Callable[[Sampler], Awaitable[T]]) -> T:
    """Play an episode; where its environment does not answer what the record has, play it anew from its key."""
    while True:
        try:
            return await play(sampler)
        except EpisodeChanged:
            if not isinstance(sampler, Recalling):
                raise
            sampler.forget()
            sampler = sampler.bind()
