"""VM-MCTS: bounds and sums by hand, what is merged and hidden, ends, cuts of ids."""

import asyncio
import importlib.util
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import TypeAdapter, ValidationError

from posttrain.components.search import Found, Search
from posttrain.components.search.tree import Node, Tree
from posttrain.engines import Sampling
from posttrain.errors import UserError
from posttrain.types import Task
from tests.builders import ScriptedSampler, info_of
from tests.components.search.lines import TASK, Lines, Scorer, never
from tests.engines.scripted import END, ScriptedPolicy, bigrams, serve


def grow(tree: Tree, lines: Lines, scorer: Any = None, values: Any = None) -> Found:
    return asyncio.run(tree.search(TASK, {"policy": lines, "value": values or lines}, scorer))


def states(found: Found) -> dict[str, tuple[float, int]]:
    return {state.text: (round(state.value, 9), state.visits) for state in found.states}


# Collecting

COLLECT = Tree(samples=2, keep=2, exploration=0.2, value_role=None)
SCRIPT = {"P:": ["a\nx", "b\ny"], "P:a\n": ["x", "z"], "P:b\n": ["y"]}
REWARDS = {"a\nx": 1.0, "a\nz": 0.0, "b\ny": 0.0}


@pytest.mark.parametrize(
    ("iterations", "expected"),
    [
        (1, {"": (0.5, 2)}),
        # both children have N = 0 and V = 0: a tie, and the first is drawn
        (2, {"": (0.5, 4), "a\n": (0.5, 2)}),
        # a: 0.5 + 0.2 sqrt((1 + ln 4) / 2.1) = 0.713; b, never gone to: 0.2 sqrt((1 + ln 4) / 0.1) = 0.977
        (3, {"": (2 / 6, 6), "a\n": (0.5, 2), "b\n": (0.0, 2)}),
        # a: 0.731, b: 0.231; below a, the end x for the first time: (1, 1)
        (4, {"": (3 / 7, 7), "a\n": (2 / 3, 3), "b\n": (0.0, 2)}),
        # x: 1 + 0.2 sqrt((1 + ln 3) / 1.1) = 1.276, z: 0.2 sqrt((1 + ln 3) / 0.1) = 0.916; x again: (1, 1)
        (5, {"": (0.5, 8), "a\n": (0.75, 4), "b\n": (0.0, 2)}),
    ],
)
def test_collecting_by_hand(iterations: int, expected: dict[str, tuple[float, int]]) -> None:
    scorer = Scorer(REWARDS)
    found = grow(Tree(**{**vars(COLLECT), "iterations": iterations}), Lines(SCRIPT), scorer)
    assert states(found) == {text: (pytest.approx(value), visits) for text, (value, visits) in expected.items()}
    assert len(scorer.graded) == len(found.trajectories), "every rollout is scored once"


def test_statistics() -> None:
    found = grow(Tree(**{**vars(COLLECT), "iterations": 5}), Lines(SCRIPT), Scorer(REWARDS))
    assert [t.completion for t in found.trajectories] == ["a\nx", "b\ny", "a\nx", "a\nz", "b\ny", "b\ny"]
    assert found.values == (1.0, 0.0, 1.0, 0.0, 0.0, 0.0)
    # root, a, b, and the ends x, z, y (which came twice, and is one child)
    expected = {"rollouts": 6, "best_after": 1, "nodes": 6, "expanded": 3, "depth": 2, "revisits": 1}
    assert {name: found.statistics[name] for name in expected} == expected


def test_the_bound_by_hand() -> None:
    tree = Tree(exploration=0.2)
    assert tree.bound(0.5, 2, 4) == pytest.approx(0.7131977, abs=1e-6)
    assert tree.bound(0.0, 0, 1) == pytest.approx(0.2 * math.sqrt(10)), "the bonus of a child with N = 0"
    assert tree.bound(0.25, 3, 0) == pytest.approx(0.25 + 0.2 * math.sqrt(1 / 3.1)), "no visit above, no logarithm of 0"
    assert Tree(exploration=0.0).bound(0.3, 0, 9) == 0.3


def test_the_first_children_are_kept_while_no_value_is_better() -> None:
    lines = Lines({"P:": ["a\n1", "b\n1", "c\n1"], "P:a\n": ["1"], "P:b\n": ["1"], "P:c\n": ["1"]})
    scorer = Scorer({"a\n1": 0.0, "b\n1": 0.0, "c\n1": 1.0})
    tree = Tree(iterations=30, samples=3, keep=2, value_role=None)
    assert set(states(grow(tree, lines, scorer))) == {"", "a\n", "b\n"}


def test_a_failed_score_counts_nowhere_and_its_end_is_never_gone_to() -> None:
    lines = Lines({"P:": ["a", "b", "c\nd"], "P:c\n": ["d"]})
    found = grow(Tree(iterations=9, samples=3, value_role=None), lines, Scorer({"b": 0.25, "c\nd": 1.0}))
    assert found.best.completion == "c\nd" and math.isnan(found.values[0])
    gone = 9 - 2  # rounds that came to an end
    root = found.states[0]
    assert root.visits == 2 + 3 + gone
    assert lines.asked.count("P:") == 3


def test_a_tree_without_any_score_stops() -> None:
    lines = Lines({"P:": ["a\nb", "a\nc"], "P:a\n": ["b"]})
    found = grow(Tree(iterations=9, samples=2, value_role=None), lines, Scorer({}))
    assert len(found.trajectories) == 4, "the root and a, then there is nowhere to go"
    assert found.states == () and found.best.completion == "a\nb"


def test_collecting_needs_a_judge() -> None:
    with pytest.raises(UserError, match="give it a value model: value_role=value"):
        grow(COLLECT, Lines(SCRIPT))


# Answering

ANSWER_SCRIPT = {"P:": ["a\nx", "a\nw", "b\ny"], "P:b\n": ["y", "y", "v"], "P:a\n": ["x"]}
VALUES = {"a\n": 0.2, "b\n": 0.9, "a\nx": 0.3, "a\nw": 0.95, "b\ny": 0.1, "b\nv": 1.7}


@pytest.mark.parametrize(
    ("iterations", "best", "expected"),
    [
        # a came twice: 2 x 0.2; b: 0.9; a is hidden (only one is kept) and counts
        (1, "a\nw", {"": (1.3 / 3, 3)}),
        # below b: y twice, 2 x 0.1, and v, clipped to 1; b itself had (0.9, 1)
        (2, "b\nv", {"": (2.5 / 6, 6), "b\n": (2.1 / 4, 4)}),
        # v is an end, again: (1, 1)
        (3, "b\nv", {"": (3.5 / 7, 7), "b\n": (3.1 / 5, 5)}),
    ],
)
def test_answering_by_hand(iterations: int, best: str, expected: dict[str, tuple[float, int]]) -> None:
    lines = Lines(ANSWER_SCRIPT, VALUES)
    found = grow(Tree(iterations=iterations, samples=3, keep=1), lines, never)
    assert states(found) == {text: (pytest.approx(value), visits) for text, (value, visits) in expected.items()}
    assert found.best.completion == best, "the best whole continuation anywhere, below hidden children too"
    assert len(set(lines.scored)) == len(lines.scored), "what was said of a sequence is kept"
    assert max(found.values) <= 1.0
    assert all(t.score is None for t in found.trajectories)


def test_ends_and_lines_of_the_same_text_are_two_children() -> None:
    values = {"a": 0.1, "a\n": 0.4, "a\nb": 0.3}
    lines = Lines({"P:": ["a", "a\nb", "a\n"], "P:a\n": ["b"]}, values)
    found = grow(Tree(iterations=1, samples=3), lines)
    # an end that closes its line is an end of its own: three children, of which two are ends
    assert [info_of(t)["node"] for t in found.trajectories] == ["/0", "/1", "/2"]
    assert found.states[0].value == pytest.approx((0.1 + 0.4 + 0.4) / 3)


def test_a_value_that_is_none_is_refused() -> None:
    with pytest.raises(UserError, match="value that is not a number"):
        grow(Tree(samples=1), Lines({"P:": ["a"]}, {"a": math.nan}))


def test_a_model_that_is_not_there() -> None:
    with pytest.raises(UserError, match="uses the role 'value', but no model has it"):
        asyncio.run(Tree().search(TASK, {"policy": Lines({})}))


# Token ids


@pytest.mark.parametrize(
    ("delimiter", "pieces"),
    [
        ("\n", ["ab;\n", "c;d"]),
        (";", ["ab;", "\nc;d"]),
        (";\n", ["ab;\n", "c;d"]),
        (2, ["ab", ";\nc;d"]),
        (8, ["ab;\nc;d"]),
    ],
)
def test_a_child_is_a_cut_of_what_was_sampled(delimiter: str | int, pieces: list[str]) -> None:
    lines = Lines({"P:": ["ab;\nc;d"]}, dict.fromkeys(["ab;\n", "ab;", "ab", "ab;\nc;d"], 0.5))
    [attempt] = grow(Tree(iterations=1, samples=1, delimiter=delimiter), lines).trajectories
    prompt, *written = attempt.segments
    assert prompt.text == "P:" and not prompt.trained
    assert [s.text for s in written] == pieces
    assert attempt.completion_ids.tolist() == [*b"ab;\nc;d", 0]
    assert attempt.behavior_logp.tolist() == [-float(i) - 2 for i in range(1, 9)]
    assert all(s.trained and s.version == 3 for s in written)


def test_rollouts_that_begin_alike_share_their_segments() -> None:
    found = grow(Tree(**{**vars(COLLECT), "iterations": 2}), Lines(SCRIPT), Scorer(REWARDS))
    first, _, third, fourth = found.trajectories
    assert first.segments[1] is third.segments[1] is fourth.segments[1]
    assert third.segments[2].state_key == "/0" and first.segments[2].state_key == "/0"
    assert third.segments[1].state_key == "/"
    assert found.statistics["sampled_tokens"] == len("a\nx.") + len("b\ny.") + len("x.") + len("z.")


def test_the_limit_is_of_a_whole_rollout() -> None:
    lines = Lines({"P:": ["a\n" + "x" * 50], "P:a\n": ["y" * 50]})
    tree = Tree(iterations=2, samples=1, value_role=None, sampling=Sampling(max_tokens=6))
    found = grow(tree, lines, Scorer({"a\nxxxx": 0.0, "a\nyyyy": 0.0}))
    assert [(t.completion, t.stop_reason) for t in found.trajectories] == [("a\nxxxx", "length"), ("a\nyyyy", "length")]


def test_text_whose_bytes_lie_in_two_lines() -> None:
    lines = Lines({"P:": ["€uro"], **{f"P:{'€'.encode()[:k]!r}": [] for k in (1, 2)}}, {"\ufffd": 0.5, "€uro": 0.5})
    [attempt] = grow(Tree(iterations=1, samples=1, delimiter=2), lines).trajectories
    assert [s.text for s in attempt.segments[1:]] == ["", "€uro"]
    assert attempt.completion == "€uro"


def test_refused_settings() -> None:
    with pytest.raises(ValidationError, match="may span two lines"):
        Tree(sampling=Sampling(stop=("x",)))
    for delimiter in ("", 0):
        with pytest.raises(ValidationError, match="delimiter"):
            Tree(delimiter=delimiter)
    read: Any = TypeAdapter(Search).validate_python({"kind": "tree", "delimiter": 5})
    assert read.delimiter == 5


def test_where_a_search_may_be_used() -> None:
    assert Tree().roles == {"policy", "value"} and not Tree().uses_rewards
    assert Tree(value_role=None, role="guide").roles == {"guide"} and Tree(value_role=None).uses_rewards
    assert Tree(sampling=Sampling(temperature=0.7)).temperature == 0.7
    assert Tree(sampling=Sampling(temperature=0.0)).temperature == 1.0


# Reproducibility


def test_the_tree_does_not_depend_on_what_is_sampled_first() -> None:
    random = bigrams(spread=2.0)

    def ending(tokens: tuple[int, ...]) -> torch.Tensor:
        logits = random(tokens).clone()
        logits[END] += 4.0
        return logits

    tree, shown = Tree(iterations=8, samples=3, delimiter=2, sampling=Sampling(max_tokens=12)), []
    for slots in (1, 3, 64):
        sampler = serve(ScriptedPolicy(ending), slots=slots).bind("step", 7)
        values = ScriptedSampler("value")
        found = asyncio.run(tree.search(Task(key="t", prompt="abc"), {"policy": sampler, "value": values}))
        shown.append([(info_of(t), t.token_ids.tolist(), t.behavior_logp.tolist()) for t in found.trajectories])
    assert shown[0] == shown[1] == shown[2]
    assert max(len(node["node"]) for node, _, _ in shown[0]) > 2


def test_log_probabilities_are_those_of_the_policy() -> None:
    """Whatever way a token was found on, its log-probability is given everything before it."""
    policy = ScriptedPolicy(bigrams(spread=2.0, vocabulary_size=258))
    sampler = serve(policy).bind("step", 0)
    tree = Tree(iterations=6, samples=3, delimiter=2, sampling=Sampling(max_tokens=8))
    found = asyncio.run(tree.search(Task(key="t", prompt="abc"), {"policy": sampler, "value": ScriptedSampler("v")}))
    assert max(len(t.segments) for t in found.trajectories) > 3
    for attempt in found.trajectories:
        logp = asyncio.run(sampler.logp(attempt.token_ids))
        np.testing.assert_allclose(attempt.behavior_logp, logp[-len(attempt.completion_ids) :], atol=1e-4)


def test_values_of_states_are_means_of_their_continuations() -> None:
    """While only the prompt is expanded, its value is the mean reward: that of the policy, not of the best choice."""
    found = grow(Tree(**{**vars(COLLECT), "iterations": 1}), Lines(SCRIPT), Scorer(REWARDS))
    assert found.states[0].value == np.mean(found.values)


def test_a_node_is_named_by_its_way() -> None:
    assert Node(segments=()).name == "/" and Node(segments=(), way=(1, 0)).name == "/1/0"


# Against best of n


@pytest.mark.slow
def test_fewer_samples_than_best_of_n() -> None:
    """Sheet 226, experiment 2, with 20 seeds: at 75 samples each, more rewarded strings, and sooner."""
    path = Path(__file__).parents[3] / "docs" / "experiments" / "tree_search.py"
    spec = importlib.util.spec_from_file_location("tree_search_experiment", path)
    assert spec is not None and spec.loader is not None
    experiment = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(experiment)
    rows = [experiment.one_seed(seed, tasks=1) for seed in range(20)]
    found = {name: sum(row[name]["found"] for row in rows) for name in ("tree", "best_of")}
    assert found["tree"] >= 10 > 5 >= found["best_of"]
    assert sum(row["tree"]["samples"] < row["best_of"]["samples"] for row in rows) >= 10
    assert sum(row["tree"]["samples"] > row["best_of"]["samples"] for row in rows) <= 3
