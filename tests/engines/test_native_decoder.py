"""The native engine on a real decoder in float32: the sampler's numbers are the learner's, whatever the batch."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from posttrain.engines import Sampling, _slots, next_logp
from posttrain.policies import Packed
from posttrain.policies._bodies import Origin
from posttrain.policies._byte_tokenizer import END_TOKEN_ID, VOCABULARY_SIZE, write_byte_tokenizer
from posttrain.policies._shape import Shape
from posttrain.policies.decoder import Decoder
from posttrain.policies.language_model import LanguageModelPolicy
from posttrain.policies.tokenizer import Tokenizer
from posttrain.signals import LOGP
from posttrain.types import Completion
from tests.engines.scripted import serve

CONFIG = {
    "model_type": "qwen3",
    "vocab_size": VOCABULARY_SIZE,
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "intermediate_size": 128,
    "max_position_embeddings": 160,
    "tie_word_embeddings": True,
}


@pytest.fixture
def policy(tmp_path: Path) -> LanguageModelPolicy:
    body = Decoder(Shape.from_config(CONFIG))
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, parameter in body.named_parameters():
            if "norm" in name:
                parameter.fill_(1.0)
            else:
                parameter.normal_(0.0, 0.15, generator=generator)
    write_byte_tokenizer(tmp_path)
    origin = Origin(source=str(tmp_path), config=b"{}", stored={}, carried={})
    return LanguageModelPolicy("policy", body, Tokenizer.load(tmp_path), origin)


def mixed_requests(n: int) -> list[tuple[np.ndarray, Sampling]]:
    """Prompts of 1 to 90 tokens, completions of up to 1 to 60, every kind of setting."""
    rng = np.random.default_rng(0)
    return [
        (
            rng.integers(0, 256, rng.integers(1, 91)),
            Sampling(
                max_tokens=int(rng.integers(1, 61)),
                temperature=[1.0, 0.7, 1.3, 0.0][i % 4],
                top_k=[0, 0, 20][i % 3],
                top_p=[1.0, 0.9][i % 2],
                min_p=[0.0, 0.0, 0.0, 0.0, 0.01][i % 5],
            ),
        )
        for i in range(n)
    ]


def write(server: Any, requests: Sequence[tuple[np.ndarray, Sampling]], order: Sequence[int]) -> dict[int, Completion]:
    async def run() -> list[list[Completion]]:
        return await asyncio.gather(*(server.bind("task", i).sample(requests[i][0], 1, requests[i][1]) for i in order))

    return {i: completions[0] for i, completions in zip(order, asyncio.run(run()), strict=True)}


def test_sampled_log_probabilities_are_the_learners(policy: LanguageModelPolicy):
    requests = mixed_requests(64)
    done = write(serve(policy, slots=64), requests, range(64))
    assert len({len(c.token_ids) for c in done.values()}) > 20
    for temperature in (1.0, 0.7, 1.3):
        chosen = [i for i in range(64) if (requests[i][1].temperature or 1.0) == temperature]
        sequences = [np.concatenate([requests[i][0], done[i].token_ids]) for i in chosen]
        starts = np.cumsum([0, *map(len, sequences)])
        packed = Packed(token_ids_L=torch.from_numpy(np.concatenate(sequences)), starts=tuple(starts.tolist()))
        positions = [starts[j] + np.arange(len(requests[i][0]), len(sequences[j])) for j, i in enumerate(chosen)]
        learned = policy.evaluate(packed, torch.from_numpy(np.concatenate(positions)), temperature=temperature)[LOGP]
        sampled = np.concatenate([done[i].logp for i in chosen])
        assert learned.requires_grad
        assert np.abs(learned.detach().numpy() - sampled).max() < 1e-5


@pytest.mark.slow
def test_a_completion_is_the_same_alone_and_in_any_batch(policy: LanguageModelPolicy):
    requests = mixed_requests(64)
    together = write(serve(policy, slots=64), requests, range(64))
    rng = np.random.default_rng(1)
    batches = [
        (64, 8192, rng.permutation(64).tolist()),
        (16, 40, list(range(64))),  # most prompts in several passes
        (5, 8192, list(range(63, -1, -1))),
    ]
    others = [write(serve(policy, slots=slots, prefill_tokens=p), requests, order) for slots, p, order in batches]
    others.append({i: write(serve(policy, slots=1), requests, [i])[i] for i in range(0, 64, 4)})
    for other in others:
        for i, completion in other.items():
            assert completion.token_ids.tolist() == together[i].token_ids.tolist()
            assert completion.logp == pytest.approx(together[i].logp, abs=1e-5)
            assert (completion.stop_reason, completion.text) == (together[i].stop_reason, together[i].text)


def test_completions_of_one_request_are_those_requested_one_by_one(policy: LanguageModelPolicy):
    prompt, sampling = np.arange(40), Sampling(max_tokens=20)

    async def ask(slots: int, counts: Sequence[int]) -> list[list[int]]:
        sampler = serve(policy, slots=slots).bind("task")
        parts = await asyncio.gather(*(sampler.sample(prompt, n, sampling) for n in counts))
        return [c.token_ids.tolist() for part in parts for c in part]

    whole = asyncio.run(ask(32, [12]))
    assert len({tuple(ids) for ids in whole}) == 12
    assert asyncio.run(ask(5, [12])) == whole  # dealt out in parts
    assert asyncio.run(ask(3, [1] * 12)) == whole
    assert asyncio.run(ask(64, [5, 1, 6])) == whole


@pytest.mark.parametrize("tokens", [0, 600])
def test_requests_wait_where_memory_is_short_and_get_the_same(
    policy: LanguageModelPolicy, monkeypatch: pytest.MonkeyPatch, tokens: int
) -> None:
    prompt, sampling = np.arange(40), Sampling(max_tokens=20)

    async def ask() -> list[list[int]]:
        sampler = server.bind("task")
        parts = await asyncio.gather(*(sampler.sample(prompt, 6, sampling) for _ in range(5)))
        return [c.token_ids.tolist() for part in parts for c in part]

    server = serve(policy, slots=64)
    together = asyncio.run(ask())
    seen: list[int] = []
    step = _slots.Slots.step

    def counted(slots: _slots.Slots) -> _slots.Step:
        seen.append(int(slots.active_S.sum()))
        return step(slots)

    monkeypatch.setattr(_slots.Slots, "step", counted)
    monkeypatch.setattr(Decoder, "cached_tokens", tokens)
    server = serve(policy, slots=64)
    assert asyncio.run(ask()) == together
    # 16 in any case; else prompts of 40 tokens and completions of a page more than 20: 40 + 13 * 36 + 40 + 36 < 600
    assert max(seen) == 16


def test_sequences_that_write_several_tokens_at_a_time_write_the_same(
    policy: LanguageModelPolicy, monkeypatch: pytest.MonkeyPatch
):
    """Ends and limits within what is written in one go, the context's too; stop strings and cuts beside them."""
    rng = np.random.default_rng(0)
    kinds: tuple[dict[str, Any], ...] = ({}, {}, {}, {"top_p": 0.9}, {"stop": ("e", "th")})

    def settings(i: int) -> Sampling:
        limit, temperature = int(rng.integers(1, 50)), 0.0 if i % 7 == 0 else 1.0
        more = kinds[i % 5] if i < 40 else {}
        return Sampling(max_tokens=limit, temperature=temperature, stop_token_ids=tuple(range(20)), **more)

    requests = [(rng.integers(32, 127, rng.integers(1, 160)), settings(i)) for i in range(120)]
    found = []
    for many, few in ((1, 1), (8, 4), (50, 3)):
        monkeypatch.setattr(_slots, "MANY", many)
        monkeypatch.setattr(_slots, "FEW", few)
        server = serve(policy, slots=32)
        done = write(server, requests, range(120))
        assert server.counters.sampled_tokens == sum(len(c.token_ids) for c in done.values())
        found.append({i: (c.token_ids.tolist(), c.logp.tolist(), c.stop_reason, c.text) for i, c in done.items()})
    assert found[0] == found[1] == found[2]
    assert {reason for _, _, reason, _ in found[0].values()} == {"stop", "length"}
    assert len({len(ids) for ids, *_ in found[0].values()}) > 20


def test_the_samplers_own_logp_equals_what_it_recorded(policy: LanguageModelPolicy):
    sampler = serve(policy).bind()

    async def run() -> None:
        completions = await sampler.sample(sampler.encode("What is 2 + 2?"), 8, Sampling(max_tokens=30))
        prompt = sampler.encode("What is 2 + 2?")
        scored = await asyncio.gather(*(sampler.logp(np.concatenate([prompt, c.token_ids])) for c in completions))
        for completion, logp in zip(completions, scored, strict=True):
            assert np.abs(logp[len(prompt) - 1 :] - completion.logp).max() < 1e-5

    asyncio.run(run())


def test_several_tokens_after_a_prompt_in_one_pass(policy: LanguageModelPolicy):
    sampler = serve(policy).bind()
    prompt, choices = sampler.encode("A or B?"), [65, 66, 200]

    async def run() -> None:
        together = await next_logp(sampler, prompt, choices)
        alone = [float((await sampler.logp(np.append(prompt, choice)))[-1]) for choice in choices]
        assert together == pytest.approx(alone, abs=1e-5)
        cooler = await sampler.next_logp(prompt, choices, 0.5)
        assert cooler[0] - cooler[1] == pytest.approx(2 * (alone[0] - alone[1]), abs=1e-4)

    asyncio.run(run())


def test_chat_messages_are_encoded_by_the_models_template(policy: LanguageModelPolicy):
    sampler = serve(policy).bind()
    ids = sampler.encode([{"role": "user", "content": "hi"}])
    assert ids.tolist() == policy.tokenizer.encode_chat([{"role": "user", "content": "hi"}]).tolist()
    assert sampler.decode(ids) == "hi"


def test_the_end_token_of_the_tokenizer_ends_a_completion(policy: LanguageModelPolicy):
    done = write(serve(policy), [(np.arange(9), Sampling(max_tokens=150))] * 24, range(24))
    ended = [c for c in done.values() if c.stop_reason == "stop"]
    assert ended
    for completion in ended:
        assert completion.token_ids.tolist().index(END_TOKEN_ID) == len(completion.token_ids) - 1
    assert all(END_TOKEN_ID not in c.token_ids for c in done.values() if c.stop_reason == "length")


def test_an_optimizer_step_is_seen_by_the_next_completion(policy: LanguageModelPolicy):
    server = serve(policy)
    request = [(np.arange(9), Sampling(max_tokens=12))]
    before = write(server, request, [0])[0]
    optimizer = torch.optim.SGD(policy.parameters(), lr=5.0)
    packed = Packed(token_ids_L=torch.arange(20), starts=(0, 20))
    (-policy.evaluate(packed, torch.arange(1, 20))[LOGP].mean()).backward()
    optimizer.step()
    policy.version += 1
    after = write(server, request, [0])[0]
    assert (before.version, after.version) == (0, 1)
    assert after.token_ids.tolist() != before.token_ids.tolist()
    assert after.token_ids.tolist() == write(serve(policy), request, [0])[0].token_ids.tolist()
