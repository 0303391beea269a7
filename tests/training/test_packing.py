"""Examples laid end to end: what a group begins with is there once, and nothing else changes."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from posttrain.policies import Policy
from posttrain.signals import ADVANTAGE, ENTROPY, LOGP
from posttrain.training.learner import evaluate_examples
from posttrain.training.packing import Example, pack, plan_micro_batches, shared_begin

CPU = torch.device("cpu")
PROMPT = np.arange(100, 120)


def example(*own: int, prompt: np.ndarray = PROMPT, group: int = 0, vectors: np.ndarray | None = None) -> Example:
    ids = np.concatenate([prompt, own]).astype(np.int64)
    positions = np.arange(len(prompt), len(ids))
    column = np.arange(len(own), dtype=np.float32)
    return Example(
        token_ids=ids,
        positions=positions,
        columns={ADVANTAGE: column},
        turn_T=np.zeros(len(own), np.int64),
        group=group,
        vectors=vectors,
    )


def test_a_shared_prompt_is_packed_once_and_every_trained_token_keeps_its_place() -> None:
    other = np.arange(200, 230)
    examples = [example(1, 2, 3), example(7, prompt=other, group=1), example(4, 5)]
    batch = pack(examples, np.ones(3, np.float32), CPU, share=True)
    assert batch.packed.token_ids_L.tolist() == [*PROMPT, 1, 2, 3, *other, 7, 4, 5]
    assert batch.packed.starts == (0, 20, 23, 54, 56) and batch.packed.after == (-1, 0, -1, 0)
    assert batch.packed.token_ids_L[batch.positions_T].tolist() == [1, 2, 3, 7, 4, 5]
    before = batch.packed.token_ids_L[batch.packed.before(batch.positions_T)]
    assert before.tolist() == [119, 1, 2, 229, 119, 4]
    plain = pack(examples, np.ones(3, np.float32), CPU)
    assert plain.packed.after is None and plain.packed.starts == (0, 23, 54, 76)
    assert torch.equal(plain.sequence_T, batch.sequence_T) and torch.equal(plain.length_N, batch.length_N)


def test_what_is_trained_or_differs_is_not_shared() -> None:
    assert shared_begin([example(1, 2)]) == 0
    assert shared_begin([example(1, 2), example(1, 3)]) == 20, "the first trained token is each one's own"
    assert shared_begin([example(1), example(1, prompt=np.array([*PROMPT[:12], 0, 0]))]) == 12
    assert shared_begin([example(1, prompt=PROMPT[:7])] * 2) == 0, "too few to be worth it"
    seen, unseen = np.ones((21, 2), np.float32), np.ones((21, 2), np.float32)
    unseen[15] = 0.0
    assert shared_begin([example(1, vectors=seen), example(2, vectors=unseen)]) == 15
    assert shared_begin([example(1, vectors=seen), example(2)]) == 0
    untrained = replace(example(1, 2), positions=np.zeros(0, np.int64), columns={}, turn_T=np.zeros(0, np.int64))
    assert shared_begin([untrained, untrained]) == 22, "what has no trained token may be shared whole"


def test_micro_batches_count_a_shared_prompt_once_and_keep_groups_together() -> None:
    examples = [example(*range(10), group=group) for _ in range(4) for group in (0, 1)]
    assert plan_micro_batches(examples, 60, share=True) == [[0, 2, 4, 6], [1, 3, 5, 7]]
    assert plan_micro_batches(examples, 50, share=True) == [[0, 2, 4], [6], [1, 3, 5], [7]]
    assert plan_micro_batches(examples, 60) == [[0, 1], [2, 3], [4, 5], [6, 7]]
    assert plan_micro_batches(examples, 10, whole_groups=True) == [[0, 2, 4, 6], [1, 3, 5, 7]]
    assert plan_micro_batches(examples, 120, whole_groups=True, share=True) == [[0, 2, 4, 6, 1, 3, 5, 7]]
    lengths = [example(*range(n), group=n) for n in (9, 3, 6)]
    assert plan_micro_batches(lengths, 49) == [[1, 2], [0]], "neighbours in length, where attention may pad"


def test_an_example_without_trained_tokens_can_be_in_a_batch() -> None:
    nothing = replace(example(), token_ids=PROMPT[:10])
    batch = pack([nothing, example(1, 2)], np.ones(2, np.float32), CPU, share=True)
    assert batch.length_N.tolist() == [0, 2]
    assert batch.packed.token_ids_L[batch.positions_T].tolist() == [1, 2]


@pytest.mark.parametrize("max_tokens", [16, 40, 10_000])
def test_log_probabilities_are_the_same_with_and_without_sharing(
    policy: Policy, max_tokens: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    examples = [example(*range(i, 2 * i + 2), group=i // 3) for i in range(7)]
    found = []
    for share in (True, False):
        monkeypatch.setattr(type(policy), "shares_prompts", share)
        found.append(evaluate_examples(policy, examples, frozenset({LOGP, ENTROPY}), max_tokens=max_tokens))
    for shared, alone in zip(*found, strict=True):
        for name, values in alone.items():
            np.testing.assert_allclose(shared[name], values, atol=1e-6)
