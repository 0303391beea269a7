"""Beams over a trie, against enumeration, and ranks by hand."""

from typing import Any

import numpy as np
import pytest
import torch

from posttrain.components.diagnostics import Subject
from posttrain.components.diagnostics._likelihoods import token_logps
from posttrain.components.diagnostics._trie import Trie, beams
from posttrain.components.diagnostics.retrieval import RetrievalRanks
from posttrain.components.tasks.arithmetic import Arithmetic
from posttrain.components.tasks.retrieval import Retrieval
from posttrain.errors import UserError
from posttrain.models import Model
from posttrain.policies import Policy
from posttrain.policies.loading import load_policy

PROMPT = np.array([40, 41, 42])
IDS = [(50, 51, 0), (50, 52, 0), (53, 51, 60, 0), (54, 0)]


@pytest.fixture(scope="module")
def policy() -> Policy:
    return load_policy("policy", Model(source="pebble"), {}, torch.device("cpu"))


def test_what_may_follow_a_prefix() -> None:
    trie = Trie.of(IDS)
    assert trie.after(()) == [50, 53, 54] and trie.after((50,)) == [51, 52] and trie.after((50, 51)) == [0]
    assert trie.after((50, 51, 0)) == [] and trie.after((99,)) == [] and trie.after((99, 1)) == []


def test_a_beam_as_wide_as_the_corpus_has_every_identifier_once_in_the_order_of_its_likelihood(policy: Policy) -> None:
    found = beams(policy, PROMPT, Trie.of(IDS), len(IDS))
    exact = [
        float(logp_T.sum(dtype=np.float64))
        for logp_T in token_logps(policy, [(np.concatenate([PROMPT, ids]), 3) for ids in IDS])
    ]
    order = sorted(range(len(IDS)), key=lambda i: -exact[i])
    assert [ids for ids, _ in found] == [IDS[i] for i in order]
    assert [total for _, total in found] == pytest.approx([exact[i] for i in order], abs=1e-4)


def test_renormalized_probabilities_sum_to_one_over_the_trie(policy: Policy) -> None:
    within = beams(policy, PROMPT, Trie.of(IDS), len(IDS), renormalized=True)
    assert sum(np.exp(total) for _, total in within) == pytest.approx(1.0)
    assert sum(np.exp(total) for _, total in beams(policy, PROMPT, Trie.of(IDS), len(IDS))) < 0.9
    [greedy] = beams(policy, PROMPT, Trie.of(IDS), 1)
    assert greedy[0] in IDS


def test_ranks_by_hand(policy: Policy, monkeypatch: pytest.MonkeyPatch) -> None:
    """Relevant at ranks 1, 2 and beyond the beams: MRR (1 + 1/2) / 3."""
    tasks = list(Retrieval(size=12, documents=12).load())[:3]
    texts = sorted({text for task in tasks for text in task.fields["ranked"]})
    calls = iter([0, 0, 1, 1, 99, 99])

    def ranked(policy: Any, prompt: Any, trie: Trie, width: int, *, renormalized: bool = False) -> Any:
        place = next(calls)
        right = tasks[{0: 0, 1: 1, 99: 2}[place]].answer
        others = [text for text in texts if text != right][:3]
        order = [*others[:place], right, *others[place:]] if place < 99 else others
        return [(tuple(int(i) for i in policy.tokenizer.encode_completion("", text)), 0.0) for text in order]

    monkeypatch.setattr("posttrain.components.diagnostics._trie.beams", ranked)
    monkeypatch.setattr(Retrieval, "load", lambda _: tasks)
    model = Subject(name="m", load=lambda: policy, serve=None)  # type: ignore[arg-type]
    finding = RetrievalRanks(tasks=Retrieval(), beams=4).examine(model)
    row = finding.values["found"]["m"]
    assert row["mrr@10"] == pytest.approx(0.5) and row["recall@1"] == pytest.approx(1 / 3)
    assert row["recall@10"] == pytest.approx(2 / 3) and row["other_first"] == 0.0 and row["logp"] < 0.0
    assert finding.values["identifiers"] == len(texts) and "MRR@10 0.500" in finding.lines[1]


def test_queries_without_a_ranking_are_refused() -> None:
    model = Subject(name="m", load=None, serve=None)  # type: ignore[arg-type]
    with pytest.raises(UserError, match="no list of identifiers in the column 'ranked'"):
        RetrievalRanks(tasks=Arithmetic(size=2)).examine(model)
