"""The group is those that end first, by numbers of tokens."""

import asyncio
from dataclasses import replace

import numpy as np

from posttrain.components.rollouts.first_ended import FirstEnded
from posttrain.components.rollouts.independent import Independent
from posttrain.engines import Sampling
from posttrain.types import Completion, Group
from tests.builders import ScriptedSampler, task

LENGTHS = (7, 2, 9, 3, 1)


class Ending(ScriptedSampler):
    """Completion i ends after LENGTHS[i] tokens in all; which it is when it goes on, its key has."""

    def __init__(self, number: int | None = None, sampled: list[int] | None = None) -> None:
        super().__init__("policy")
        self.number, self.sampled = number, [] if sampled is None else sampled

    def bind(self, *key: int | str) -> "Ending":
        assert key[0] == "part"
        return Ending(int(key[-1]), self.sampled)

    async def sample(
        self, token_ids: np.ndarray, n: int, sampling: Sampling, vectors: np.ndarray | None = None
    ) -> list[Completion]:
        written = sum(int(i) == 65 for i in token_ids)
        numbers = range(n) if self.number is None else [self.number]
        left = [LENGTHS[i] - written for i in numbers]
        counts = [min(own, sampling.max_tokens) for own in left]
        self.sampled += counts
        return [
            Completion(
                token_ids=np.full(count, 65),
                logp=np.full(count, -1.0, np.float32),
                stop_reason="stop" if own <= sampling.max_tokens else "length",
                version=0,
                text="a" * count,
            )
            for own, count in zip(left, counts, strict=True)
        ]


def played(rollout: FirstEnded | Independent) -> tuple[Group, int]:
    sampler = Ending()
    [group] = asyncio.run(rollout.collect(task(prompt="x"), {"policy": sampler}))
    return group, sum(sampler.sampled)


def test_the_first_that_end_are_kept_in_the_order_of_their_numbers() -> None:
    """In pieces of 4 the second, fourth and fifth end in the first: 4 + 2 + 4 + 3 + 1 tokens are sampled."""
    group, sampled = played(FirstEnded(n=3, over=2, piece=4, sampling=Sampling(max_tokens=16)))
    assert [t.completion for t in group] == ["aa", "aaa", "a"]
    assert [t.sample for t in group] == [0, 1, 2] and sampled == 14


def test_of_those_that_end_in_a_piece_the_shorter_are_first() -> None:
    group, _ = played(FirstEnded(n=2, over=3, piece=4, sampling=Sampling(max_tokens=16)))
    assert [t.completion for t in group] == ["aa", "a"]


def test_a_completion_goes_on_piece_by_piece_to_its_limit() -> None:
    """The first has parts of 4 and 3, the third is cut at 8: it has ended with the others, and is the longest."""
    group, _ = played(FirstEnded(n=5, over=0, piece=4, sampling=Sampling(max_tokens=8)))
    assert [[len(s) for s in t.segments[1:]] for t in group] == [[4, 3], [2], [4, 4], [3], [1]]
    assert [t.stop_reason for t in group] == ["stop", "stop", "length", "stop", "stop"]


def test_with_none_over_and_one_piece_it_is_independent() -> None:
    sampling = Sampling(max_tokens=16)
    group, sampled = played(FirstEnded(n=5, over=0, piece=16, sampling=sampling))
    plain, same = played(Independent(n=5, sampling=sampling))
    assert sampled == same and [replace(t, task=plain.trajectories[0].task).completion for t in group] == [
        t.completion for t in plain
    ]
