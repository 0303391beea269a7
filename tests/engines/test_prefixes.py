"""Prompts of which only the next token matters: what they share is computed once, and answers are as alone."""

import asyncio

import numpy as np
import pytest
import torch

from posttrain.engines import next_logp
from posttrain.engines._prefixes import SHORTEST, divided, packed_once
from posttrain.policies import Packed
from posttrain.policies.folder import new_folder
from posttrain.policies.language_model import LanguageModelPolicy
from posttrain.types import IntArray
from tests.engines.scripted import serve
from tests.policies.made_models import load

QUESTION = "Which of the responses is better? Say A or B. "


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> LanguageModelPolicy:
    return load(new_folder(tmp_path_factory.mktemp("tiny"), layers=2, width=32, heads=2, kv_heads=1, context=512))


def ids(*texts: str) -> list[IntArray]:
    return [np.frombuffer(text.encode(), np.uint8).astype(np.int64) for text in texts]


def tokens(groups: list[tuple[list[int], int]], sequences: list[IntArray]) -> int:
    return sum(length + sum(len(sequences[i]) - length for i in members) for members, length in groups)


def test_groups_share_what_makes_the_fewest_tokens() -> None:
    a, b = "context one is this: ", "context two is that: "  # 8 tokens are the same, then 21
    sequences = ids(a + "x y", b + "x", "other", a + "y x", b + "yy", a + "z")
    groups = divided(sequences)
    assert sorted((sorted(members), length) for members, length in groups) == [
        ([0, 3, 5], len(a)), ([1, 4], len(b)), ([2], 0)]  # fmt: skip
    assert tokens(groups, sequences) == sum(map(len, sequences)) - 2 * len(a) - len(b)


def test_each_keeps_a_token_of_its_own_and_short_prefixes_stay() -> None:
    same = ids("the same prompt", "the same prompt")
    assert divided(same) == [([0, 1], len(same[0]) - 1)]
    begins = ids("x" * 9, "x" * 9 + "abc")
    assert divided(begins) == [([0, 1], 8)], "one is the beginning of the other"
    short = ids("x" * (SHORTEST - 1) + "a", "x" * (SHORTEST - 1) + "b")
    assert [length for _, length in divided(short)] == [0, 0]
    assert divided(ids("a")) == [([0], 0)]


def test_last_rows_are_those_of_the_sequences() -> None:
    sequences = ids("a common beginning, 1", "alone", "a common beginning, 22")
    packed, ends = packed_once(sequences, torch.device("cpu"))
    assert [int(packed.token_ids_L[end]) for end in ends] == [ord("1"), ord("e"), ord("2")]
    assert packed.after is not None and len(packed.token_ids_L) < sum(map(len, sequences))
    assert packed.alone()[0].token_ids_L.numel() > len(packed.token_ids_L)
    plain, ends = packed_once(sequences, torch.device("cpu"), shares=False)
    assert plain.after is None and ends == [20, 25, 47]


def test_answers_in_company_are_those_alone_and_tokens_are_computed_once(
    policy: LanguageModelPolicy, monkeypatch: pytest.MonkeyPatch
) -> None:
    prompts = ids(
        *(f"{QUESTION}{n} {one} {other}\n" for n in range(5) for one, other in (("cat", "dog"), ("dog", "cat")))
    )
    prompts += ids("something else")
    seen: list[int] = []
    hidden = policy.body.hidden

    def counted(packed: Packed) -> torch.Tensor:
        seen.append(len(packed.token_ids_L))
        return hidden(packed)

    monkeypatch.setattr(policy.body, "hidden", counted)
    sampler = serve(policy).bind("x")

    async def together() -> list[list[float]]:
        return await asyncio.gather(*(next_logp(sampler, prompt, [65, 66]) for prompt in prompts))

    async def alone() -> list[list[float]]:
        return [await next_logp(sampler, prompt, [65, 66]) for prompt in prompts]

    found, wanted = asyncio.run(together()), asyncio.run(alone())
    np.testing.assert_allclose(found, wanted, atol=1e-5)
    one, several = seen[0], seen[1:]
    assert several == [len(prompt) for prompt in prompts], "each by itself"
    if policy.body.shares_prompts:
        assert one < 0.5 * sum(several)
        assert found == wanted, "to the bit"


def test_more_prompts_than_rows_of_logits_and_a_limit_of_tokens(policy: LanguageModelPolicy) -> None:
    prompts = ids(*(f"{QUESTION}{n}" for n in range(40)))
    sampler = serve(policy, prefill_tokens=600).bind("x")

    async def together() -> list[list[float]]:
        return await asyncio.gather(*(next_logp(sampler, prompt, [65, 66]) for prompt in prompts))

    found = asyncio.run(together())
    alone = asyncio.run(next_logp(serve(policy).bind("x"), prompts[33], [65, 66]))
    np.testing.assert_allclose(found[33], alone, atol=1e-5)
    assert len({tuple(row) for row in found}) > 30
