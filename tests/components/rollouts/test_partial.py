"""Completions in parts: what goes on, what is scored, and what is learned from."""

import asyncio
from dataclasses import replace

import numpy as np
import pytest

from posttrain.components.rollouts.independent import Independent
from posttrain.components.rollouts.partial import Partial
from posttrain.engines import Sampling
from posttrain.types import Completion, Group
from tests.builders import ScriptedSampler, score, task

ROLLOUT = Partial(n=2, budget=3, sampling=Sampling(max_tokens=8))


class Counting(ScriptedSampler):
    """Completion number i of the first request ends after 2 + 5 i tokens in all."""

    def __init__(self, version: int) -> None:
        super().__init__("policy", version=version)
        self.limits: list[int] = []

    def bind(self, *key: int | str) -> "Counting":
        return self

    async def sample(
        self, token_ids: np.ndarray, n: int, sampling: Sampling, vectors: np.ndarray | None = None
    ) -> list[Completion]:
        self.limits.append(sampling.max_tokens)
        written = sum(int(i) == 65 for i in token_ids)
        found = []
        for i in range(n):
            left = 2 + 5 * i - written if n > 1 else 7 - written
            ids = np.full(min(left, sampling.max_tokens), 65)
            found.append(
                Completion(
                    token_ids=ids,
                    logp=np.full(len(ids), -float(self.version), np.float32),
                    stop_reason="stop" if left <= sampling.max_tokens else "length",
                    version=self.version,
                    text="a" * len(ids),
                )
            )
        return found


async def scorer(group: Group) -> Group:
    return replace(group, trajectories=tuple(t.scored(score(1.0)) for t in group))


def played(rollout: Partial) -> tuple[list[Group], list[int]]:
    """The group after each step, with weights of versions 1, 2, 3, and the limits of all requests."""
    first = Counting(1)
    [group] = asyncio.run(rollout.collect_scored(task(prompt="x"), {"policy": first}, scorer))
    found, limits = [group], list(first.limits)
    for version in (2, 3):
        sampler = Counting(version)
        [group] = asyncio.run(rollout.go_on(group, {"policy": sampler}, scorer))
        found.append(group)
        limits += sampler.limits
    return found, limits


def test_each_part_keeps_the_log_probabilities_of_its_weights() -> None:
    """7 tokens with 3 in a step: parts of 3, 3 and 1, by three versions; nothing is scored before the end."""
    groups, limits = played(ROLLOUT)
    assert [all(t.score is None for t in g) for g in groups] == [True, True, False]
    short, long = groups[-1]
    assert len(short.segments) == 2 and [len(s) for s in long.segments[1:]] == [3, 3, 1]
    assert [s.version for s in long.segments[1:]] == [1, 2, 3]
    assert long.behavior_logp.tolist() == [-1, -1, -1, -2, -2, -2, -3]
    assert limits == [3, 3, 2], "8 tokens in all"
    assert long.completion == "a" * 7


def test_earlier_parts_may_be_left_out_of_the_loss() -> None:
    groups, _ = played(replace(ROLLOUT, earlier="exclude"))
    short, long = groups[-1]
    assert (short.num_trained, long.num_trained) == (2, 1) and long.completion == "a" * 7


def test_a_rollout_without_parts_has_nothing_to_go_on_with() -> None:
    with pytest.raises(NotImplementedError):
        asyncio.run(Independent().go_on(Group(key="k", trajectories=()), {}, scorer))
