import asyncio
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from posttrain.components.rollouts.independent import Independent
from posttrain.components.rollouts.tree import Tree
from posttrain.engines import Sampler, Sampling
from posttrain.types import Completion, Group, Task
from tests.builders import ScriptedSampler, info_of, task
from tests.engines.scripted import END, ScriptedPolicy, bigrams, serve, writes


def grow(tree: Tree, sampler: Sampler, of: Task | None = None) -> Group:
    [group] = asyncio.run(tree.collect(of or task(), {"policy": sampler}))
    return group


class Logged(ScriptedSampler):
    """Remembers how many completions each request was for; `script` overrides the answer to a request by its number."""

    def __init__(self, script: dict[int, tuple[str, bool]] | None = None, *, endless: bool = True) -> None:
        super().__init__()
        self.script, self.endless = script or {}, endless
        self.widths: list[int] = []

    async def sample(
        self, token_ids: np.ndarray, n: int, sampling: Sampling, vectors: np.ndarray | None = None
    ) -> list[Completion]:
        self.widths.append(n)
        written = []
        for _ in range(n):
            number = len(self.completions)
            text, stops = self.script.get(number, ("abcdefgh"[: sampling.max_tokens], not self.endless))
            ids = np.array([ord(c) for c in text])
            completion = Completion(
                token_ids=ids,
                logp=np.full(len(ids), -1.0, np.float32),
                stop_reason="stop" if stops else "length",
                version=3,
                text=text,
            )
            self.completions.append(completion)
            written.append(completion)
        return written


def nodes(group: Group) -> list[str]:
    return [info_of(attempt)["node"] for attempt in group]


# What every tree is like


@given(
    n=st.integers(1, 12),
    segment=st.integers(1, 6),
    depth=st.integers(1, 5),
    width=st.integers(1, 4),
    limit=st.integers(1, 20),
    key=st.integers(0, 10**6),
)
def test_leaves_are_what_was_asked_for(n: int, segment: int, depth: int, width: int, limit: int, key: int) -> None:
    policy = ScriptedSampler(key)
    tree = Tree(n=n, segment=segment, depth=depth, width=width, sampling=Sampling(max_tokens=limit))
    group = grow(tree, policy)
    assert [attempt.sample for attempt in group] == list(range(n))
    assert len(set(nodes(group))) == n
    sampled = {id(s): s for attempt in group for s in attempt.segments[1:]}
    assert len(sampled) == len(policy.completions), "everything that was sampled is in a leaf, once"
    for attempt in group:
        written = attempt.segments[1:]
        assert len(written) <= depth and attempt.num_trained <= limit
        assert all(len(s) == segment for s in written[:-1])
        assert attempt.stop_reason == ("stop" if info_of(attempt)["ended"] == "stop" else "length")
        if info_of(attempt)["ended"] == "length":
            assert len(written) == depth or attempt.num_trained == limit
        assert attempt.completion == policy.decode(attempt.completion_ids)


@given(st.integers(0, 10**6))
def test_a_state_key_is_a_way_from_the_prompt(key: int) -> None:
    group = grow(Tree(n=10, segment=3, depth=5), ScriptedSampler(key))
    ways = {}
    for attempt in group:
        for place, segment in enumerate(attempt.segments[1:], start=1):
            way = tuple(map(id, attempt.segments[:place]))
            assert ways.setdefault(segment.state_key, way) == way
    assert len(set(ways.values())) == len(ways), "and two ways have two keys"
    assert "/" in ways


def test_shared_segments_are_sampled_once() -> None:
    """Sixteen paths, binary: 2 + 4 + 8 + 16 segments instead of 4 * 16."""
    policy = Logged(dict.fromkeys(range(14, 30), ("end", True)))
    group = grow(Tree(n=16, segment=3, depth=9), policy)
    assert sum(len(c.token_ids) for c in policy.completions) == 30 * 3
    assert sum(attempt.num_trained for attempt in group) == 64 * 3
    keys = Counter(s.state_key for attempt in group for s in attempt.segments[1:])
    assert sorted(keys.values()) == [2] * 8 + [4] * 4 + [8] * 2 + [16]


def test_a_rollout_has_which_one_it_branched_off() -> None:
    policy = Logged(dict.fromkeys(range(2, 6), ("end", True)))
    group = grow(Tree(n=4, segment=3), policy)
    assert nodes(group) == ["/0/0", "/0/1", "/1/0", "/1/1"]
    assert [attempt.parent for attempt in group] == [None, 0, None, 2]


# The budget


@pytest.mark.parametrize(
    ("n", "widths"),
    [
        (8, [2, 2, 2, 2, 2, 2, 2] + [1] * 8),
        (6, [2, 2, 2, 1, 1, 1, 3] + [1] * 6),  # the last path takes what is left over
        (3, [2, 1, 2, 1, 1, 1, 1, 1, 1]),
        (1, [1, 1, 1, 1]),
    ],
)
def test_branches_of_paths_that_do_not_end(n: int, widths: list[int]) -> None:
    policy = Logged()
    grow(Tree(n=n, segment=2, depth=4), policy)
    assert policy.widths == widths


def test_paths_that_ended_hand_on_their_branches() -> None:
    # The first of two ends at once: max(1, min(5 - 1, 2 * 1 + 2 * 1)) = 4 segments follow the other.
    policy = Logged({0: ("x", True)})
    grow(Tree(n=5, segment=2, depth=3), policy)
    assert policy.widths[:2] == [2, 4]


def test_never_fewer_segments_than_paths() -> None:
    tree, policy = Tree(n=4, segment=2, depth=3, width=1), Logged()
    grow(tree, policy)
    assert policy.widths == [1, 1, 1] * 4, "one path at a time; each of the others starts at the prompt"


# When every path has ended


def test_it_falls_back_only_when_every_path_has_ended() -> None:
    policy = Logged({2: ("x", True), 3: ("y", True), 4: ("z", True)}, endless=False)
    policy.script |= {0: ("abc", False), 1: ("abc", True)}
    group = grow(Tree(n=6, segment=3, depth=4), policy)
    assert len(group) == 6
    assert policy.widths[:3] == [2, 4, 1], "max(1, min(5, 2 + 2)) from the open path, then one that is missing"
    assert nodes(group)[:5] == ["/1", "/0/0", "/0/1", "/0/2", "/0/3"]
    assert nodes(group)[5] in ("/2", "/0/4"), "a new child of a node that there was"


def test_every_boundary_is_cut_at_but_the_last() -> None:
    """A chain of three segments that answers is grown again from the prompt, its first or its second segment."""
    depths = Counter()
    for key in range(40):
        chain = {0: ("abc", False), 1: ("abc", False), 2: (f"{key:02}", True), 3: ("x", True)}
        group = grow(Tree(n=2, segment=3, depth=4, width=1), Logged(chain))
        depths[len(group.trajectories[1].segments) - 2] += 1
    assert set(depths) == {0, 1, 2}
    assert min(depths.values()) >= 4


def test_without_an_answer_it_begins_at_the_prompt() -> None:
    policy = Logged()
    group = grow(Tree(n=5, segment=2, depth=1), policy)
    assert policy.widths == [2, 2, 1]
    assert nodes(group) == ["/0", "/1", "/2", "/3", "/4"]
    assert {info_of(attempt)["ended"] for attempt in group} == {"length"}


# The end of a path


@pytest.mark.parametrize(("text", "ended"), [("abab" * 3, "repetition"), ("abcdefghijkl", "length")])
def test_repetition_ends_a_path(text: str, ended: str) -> None:
    # "abab" returns at 0, 2, 4, 6 and 8
    policy = Logged(dict.fromkeys(range(9), (text, False)))
    group = grow(Tree(n=1, segment=12, depth=2, repeat_length=4, repeat_count=5), policy)
    assert info_of(group.trajectories[0])["ended"] == ended
    assert group.trajectories[0].stop_reason == "length"
    policy = Logged(dict.fromkeys(range(9), (text, False)))
    group = grow(Tree(n=1, segment=12, depth=2, repeat_length=4, repeat_count=6), policy)
    assert info_of(group.trajectories[0])["ended"] == "length"


@pytest.mark.parametrize("context", [19, 20, 21])
def test_a_path_ends_at_the_limit_of_the_context(context: int) -> None:
    server = serve(writes({"four": "x" * 100}, context=context))
    group = grow(Tree(n=3, segment=8), server.bind("test"), Task(key="t", prompt="four"))
    assert [len(attempt.token_ids) for attempt in group] == [context] * 3
    assert {attempt.stop_reason for attempt in group} == {"length"}


@pytest.mark.parametrize("segment", [1, 2, 3, 100])
def test_the_text_is_that_of_the_whole_answer(segment: int) -> None:
    """Characters whose bytes lie in two segments are whole, and the stop token is left out."""
    sampling = Sampling(max_tokens=30, stop_token_ids=(ord("\n"),))
    of = Task(key="t", prompt="p")
    server = serve(writes({"p": "aé€😀b\nc"}))
    for attempt in grow(Tree(n=3, segment=segment, depth=20, sampling=sampling), server.bind("test"), of):
        assert attempt.completion == "aé€😀b"
        assert attempt.completion_ids.tolist() == list("aé€😀b\n".encode())
    [[flat]] = asyncio.run(Independent(n=1, sampling=sampling).collect(of, {"policy": server.bind("test")}))
    assert flat.completion == "aé€😀b"


def test_stop_strings_are_refused() -> None:
    with pytest.raises(ValidationError, match="may span two segments of a tree; use stop_token_ids"):
        Tree(sampling=Sampling(stop=("\n",)))


# Reproducibility


def test_the_tree_does_not_depend_on_what_is_sampled_first() -> None:
    """With one slot, paths are written one after another, with many all at once: the draws are the same."""
    random = bigrams(spread=2.0)

    def ending(tokens: tuple[int, ...]) -> torch.Tensor:
        logits = random(tokens).clone()
        logits[END] += 4.0
        return logits

    tree, shown = Tree(n=8, segment=4, depth=5, sampling=Sampling(max_tokens=20)), []
    for slots in (1, 3, 64):
        server = serve(ScriptedPolicy(ending), slots=slots)
        group = grow(tree, server.bind("step", 7), Task(key="t", prompt="abc"))
        shown.append([(info_of(a), a.parent, a.token_ids.tolist(), a.behavior_logp.tolist()) for a in group])
    assert shown[0] == shown[1] == shown[2]
    assert len({len(a) for _, _, a, _ in shown[0]}) > 1
