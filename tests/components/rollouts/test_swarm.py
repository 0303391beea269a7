"""Nodes that share texts: who writes, what readers get in ids of their own, and what is left out."""

import asyncio
from dataclasses import replace

import numpy as np

from posttrain.components.rollouts import Shared
from posttrain.components.rollouts.swarm import Swarm
from posttrain.engines import Sampling
from posttrain.types import Group
from tests.builders import ScriptedSampler, score, task

NODES = ("policy", "b", "c")


class Spaced(ScriptedSampler):
    """Another tokenizer: its ids are those of the other one, minus 40."""

    def encode_completion(self, prompt: object, text: str) -> np.ndarray:
        return np.array([*(i - 40 for i in text.encode()), 0], np.int64)


async def graded(group: Group) -> Group:
    """A reward by the text alone."""
    scored = tuple(t.scored(score(float(len(t.segments[-1].text) % 2))) for t in group)
    return replace(group, trajectories=scored)


def collected(key: str, context: int = 4096) -> list[Group]:
    samplers = {"policy": ScriptedSampler("policy", key), "b": ScriptedSampler("b", key), "c": Spaced("c", key)}
    samplers["c"].context = context
    rollout = Swarm(n=3, nodes=NODES, sampling=Sampling(max_tokens=6))
    return asyncio.run(rollout.collect_scored(task(), samplers, graded))


def author_of(groups: list[Group]) -> str:
    return groups[0].trajectories[0].segments[-1].actor


def test_one_node_writes_and_all_others_read() -> None:
    authors = set()
    for number in range(12):
        first, *others = collected(str(number))
        authors.add(author_of([first]))
        assert all(t.fact(Shared) is None for t in first)
        assert {author_of([g]) for g in others} == set(NODES) - {author_of([first])}
        for own in others:
            assert [t.fact(Shared) for t in own] == [own.trajectories[0].fact(Shared)] * 3
            assert [t.segments[-1].text for t in own] == [t.segments[-1].text for t in first]
            assert [t.score for t in own] == [t.score for t in first], "scored by the same verifier"
            assert all(t.learners == {author_of([own])} for t in own)
    assert authors == set(NODES)


def test_texts_are_in_the_ids_of_the_reader_and_without_log_probabilities() -> None:
    groups = next(found for number in range(9) if author_of(found := collected(str(number))) != "c")
    written, read = groups[0], next(g for g in groups if author_of([g]) == "c")
    for one, other in zip(written, read, strict=True):
        text = one.segments[-1].text
        wanted = [i - 40 for i in text.encode()] + [0] * (one.stop_reason == "stop")
        assert other.segments[-1].token_ids.tolist() == wanted
        assert np.isnan(other.behavior_logp).all(), "the old policy of the loss is the reader's own"


def test_what_does_not_fit_is_left_out() -> None:
    groups = next(found for number in range(9) if author_of(found := collected(str(number), context=10)) != "c")
    assert "c" not in {author_of([g]) for g in groups}
