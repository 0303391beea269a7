"""Trees of responses: prefixes are shared exactly, and pairs are counted by the depth of their ancestor."""

import asyncio
from collections import Counter
from dataclasses import replace

import numpy as np

from posttrain.components.pairings import Paired, Rollouts
from posttrain.components.pairings.prefix_tree import PrefixTree
from posttrain.engines import Sampling
from posttrain.types import Completion, Group, Score, Segment, Task, Trajectory
from tests.builders import ScriptedSampler

TASK = Task(key="k", prompt="p")


class Letters(ScriptedSampler):
    """Writes one letter of its key for each segment: the way down the tree is the text."""

    stops: str = ""

    def bind(self, *key: int | str) -> "Letters":
        bound = Letters(*self.key, *key)
        bound.stops = self.stops
        return bound

    async def sample(
        self, token_ids: np.ndarray, n: int, sampling: Sampling, vectors: np.ndarray | None = None
    ) -> list[Completion]:
        last = sampling.max_tokens > 1
        made = []
        for i in range(n):
            text = "ab"[i % 2]
            ended = last or text in self.stops
            made.append(
                Completion(
                    token_ids=np.array([ord(text)]),
                    logp=np.zeros(1, np.float32),
                    stop_reason="stop" if ended else "length",
                    version=0,
                    text=text,
                )
            )
        return made


def made(pairing: PrefixTree, stops: str = "", *, equal: bool = False) -> Paired:
    sampler = Letters("k")
    sampler.stops = stops

    async def scorer(group: Group) -> Group:
        def score(trajectory: Trajectory) -> Score:
            value = 0 if equal else int("1" + trajectory.completion.replace("a", "0").replace("b", "1"), 2)
            return Score(value=float(value), status="ok")

        return replace(group, trajectories=tuple(t.scored(score(t)) for t in group))

    written = Segment(actor="policy", token_ids=np.array([97]), trained=True, text="x")
    one = Trajectory(task=TASK, segments=(sampler.prompt(TASK), written), stop_reason="stop")
    given = Rollouts(
        task=TASK, trajectories=(one.scored(Score(value=0.0, status="wrong")),), sampler=sampler, scorer=scorer
    )
    return asyncio.run(pairing.pair(given))


SMALL = Sampling(max_tokens=9)


def test_counts_by_depth_of_the_ancestor_are_16_8_and_4() -> None:
    found = made(PrefixTree(segment=1, most=100, sampling=SMALL))
    assert found.rollouts == 8 and len(found.pairs) == 28
    assert Counter(pair.fields["ancestor"] for pair in found.pairs) == {0.0: 16, 1.0: 8, 2.0: 4}
    for pair in found.pairs:
        shared = int(pair.fields["ancestor"])
        assert pair.chosen[:shared] == pair.rejected[:shared] and pair.chosen[shared] == "b" != pair.rejected[shared]
        assert pair.fields["suffix"] == 3 - shared


def test_few_pairs_are_of_every_depth() -> None:
    found = made(PrefixTree(segment=1, most=6, sampling=SMALL))
    assert Counter(pair.fields["ancestor"] for pair in found.pairs) == {0.0: 2, 1.0: 2, 2.0: 2}


def test_a_leaf_that_ends_early_is_shorter_and_stays() -> None:
    """Every path that writes b ends: a a a, a a b, a b and b are the leaves."""
    found = made(PrefixTree(segment=1, most=100, sampling=SMALL), stops="b")
    texts = {text for pair in found.pairs for text in (pair.chosen, pair.rejected)}
    assert texts == {"aaa", "aab", "ab", "b"} and len(found.pairs) == 6


def test_depth_1_is_the_chain_and_equal_scores_and_texts_make_no_pair() -> None:
    (pair,) = made(PrefixTree(depth=1, sampling=SMALL)).pairs
    assert (pair.chosen, pair.rejected, pair.fields["ancestor"]) == ("b", "a", 0.0)
    assert made(PrefixTree(segment=1, sampling=SMALL), equal=True).reason == "all rollouts score the same"
    assert len(made(PrefixTree(branches=4, depth=1, sampling=SMALL)).pairs) == 1, "four leaves of two texts"
