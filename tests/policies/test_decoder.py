import itertools
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from posttrain.errors import UserError
from posttrain.policies import Body, Packed, _attention
from posttrain.policies._attention import padded_length
from posttrain.policies._shape import Shape, not_native
from posttrain.policies.decoder import Decoder
from posttrain.policies.folder import new_folder
from tests.policies.made_models import (
    DECODERS,
    SIZES,
    assert_same_whatever_is_beside,
    load,
    make_folder,
    pack,
    packed_logits,
    random_sequences,
    sampled_states,
    transformers_logits,
)

MIXED = random_sequences(5, 40, 1, 129, 17, 300, 33)


@pytest.fixture(scope="module")
def body(tmp_path_factory: pytest.TempPathFactory) -> Body:
    folder = make_folder(tmp_path_factory.mktemp("qwen3"), "Qwen3Config", {"head_dim": 16})
    return load(folder).body


@pytest.mark.parametrize("name", DECODERS)
def test_logits_are_those_of_transformers(name: str, tmp_path: Path) -> None:
    folder = make_folder(tmp_path, *DECODERS[name])
    policy = load(folder)
    assert isinstance(policy.body, Decoder)
    expected = transformers_logits(folder, MIXED)
    assert expected.std() > 0.5
    torch.testing.assert_close(packed_logits(policy.body, MIXED), expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("name", ["qwen3", "qwen2 tied", "llama llama3 rope", "llama one key head"])
def test_sampling_and_learning_are_one_function(name: str, tmp_path: Path) -> None:
    body = load(make_folder(tmp_path, *DECODERS[name])).body
    prompts = [2, 30, 1, 64, 16, 270, 32]
    hidden = body.hidden(pack(MIXED)).detach().split([len(ids) for ids in MIXED])
    for states, all_states, prompt in zip(sampled_states(body, MIXED, prompts), hidden, prompts, strict=True):
        logp, expected = (body.logits(s).detach().log_softmax(-1) for s in (states, all_states[prompt - 1 :]))
        torch.testing.assert_close(logp, expected, atol=1e-5, rtol=0)


def test_packed_neighbours_and_order_have_no_effect(body: Body) -> None:
    def compute(sequences: list[Tensor]) -> list[Tensor]:
        with torch.no_grad():
            return list(body.logits(body.hidden(pack(sequences))).split([len(ids) for ids in sequences]))

    assert_same_whatever_is_beside(compute, MIXED)


def test_neighbours_in_the_cache_have_no_effect(body: Body) -> None:
    """64 sequences of many lengths, a few of them long; each once more alone."""
    sequences = random_sequences(*range(20, 81), 200, 320, 512)

    def compute(beside: list[Tensor]) -> list[Tensor]:
        states = sampled_states(body, beside, [len(ids) - 12 for ids in beside])
        return [body.logits(s).detach() for s in states]

    together = compute(sequences)
    for i in (0, 1, 13, 40, 60, 61, 62, 63):
        alone = compute([sequences[i]])[0].log_softmax(-1)
        torch.testing.assert_close(alone, together[i].log_softmax(-1), atol=1e-5, rtol=0)


def test_slots_are_any_and_few_of_many(body: Body) -> None:
    sequences = random_sequences(9, 31, 70)
    expected = sampled_states(body, sequences, [4, 20, 60])
    states = sampled_states(body, sequences, [4, 20, 60], slots=[11, 0, 5])
    for given, wanted in zip(states, expected, strict=True):
        assert torch.equal(given, wanted)


def test_turns_continue_what_a_slot_holds(body: Body) -> None:
    hidden = body.hidden(pack(MIXED)).detach().split([len(ids) for ids in MIXED])
    cache = body.new_cache(7, 4)
    body.extend(cache, [1, 3], pack([MIXED[5][:100], MIXED[1][:7]]))
    second = body.extend(cache, [1, 3, 6], pack([MIXED[5][100:290], MIXED[1][7:8], MIXED[3][:128]]))
    third = body.extend(cache, [3, 6, 1], pack([MIXED[1][8:], MIXED[3][128:], MIXED[5][290:]]))
    torch.testing.assert_close(second, torch.stack([hidden[5][289], hidden[1][7], hidden[3][127]]), atol=2e-5, rtol=0)
    torch.testing.assert_close(third, torch.stack([hidden[1][-1], hidden[3][-1], hidden[5][-1]]), atol=2e-5, rtol=0)
    assert cache.lengths == [0, 300, 0, 40, 0, 0, 129]


def test_a_prompt_is_computed_once_for_a_group(body: Body) -> None:
    prompt, new = random_sequences(21, 1)
    cache = body.new_cache(4, 32)
    body.extend(cache, [0, 2], pack([random_sequences(300, seed=3)[0], prompt]))
    cache.release(0)
    cache.copy(2, [0, 2, 3])
    assert cache.lengths == [21, 0, 21, 21]
    states = body.extend(cache, [3, 0, 2], pack([new] * 3))
    expected = sampled_states(body, [torch.cat([prompt, new])], [21])[0][-1]
    assert all(torch.equal(state, expected) for state in states)


def test_sampling_within_inference_mode_does_not_spoil_training(tmp_path: Path) -> None:
    policy = load(new_folder(tmp_path), trained=True)
    with torch.inference_mode():
        cache = policy.body.new_cache(1, 8)
        policy.body.extend(cache, [0], pack(random_sequences(20)))
    policy.body.extend(cache, [0], pack(random_sequences(1)))
    policy.body.hidden(pack(random_sequences(30))).sum().backward()
    assert all(p.grad is not None for p in policy.parameters())


def test_padding_depends_on_the_length_alone_and_is_small() -> None:
    for length in range(1, 5000):
        padded = padded_length(length)
        assert padded >= length and padded % 32 == 0
        assert padded - length < max(32, length / 8 + 1)


def test_dtype_bfloat16_is_close_to_float32(tmp_path: Path) -> None:
    folder = make_folder(tmp_path, "Qwen3Config", {"head_dim": 16})
    logits = packed_logits(load(folder, dtype="bfloat16").body, MIXED)
    assert logits.dtype == torch.bfloat16
    exact = packed_logits(load(folder).body, MIXED)
    assert (logits.float() - exact).abs().mean() < 0.02 * exact.std()


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"model_type": "gpt2"}, "model_type is 'gpt2' (native: llama, qwen2, qwen3)"),
        ({"hidden_act": "gelu"}, "hidden_act is 'gelu'"),
        ({"layer_types": ["full_attention", "sliding_attention"], "sliding_window": 64}, "window of 64 tokens"),
        ({"use_sliding_window": True, "sliding_window": 64, "max_window_layers": 1}, "window of 64 tokens"),
        ({"rope_scaling": {"type": "longrope"}}, "rope type is 'longrope'"),
        ({"rope_scaling": {"type": "llama3", "factor": 8.0}}, "rope settings lack low_freq_factor, high_freq_factor"),
        ({"partial_rotary_factor": 0.5}, "rotates only 0.5"),
    ],
)
def test_what_is_not_native_is_said(changes: dict[str, Any], reason: str) -> None:
    config = {"model_type": "qwen2", **SIZES, **changes}
    assert reason in str(not_native(config))
    with pytest.raises(UserError, match="transformers body"):
        Shape.from_config(config)


def test_a_window_for_no_layer_is_none() -> None:
    config = {"model_type": "qwen2", **SIZES, "use_sliding_window": True, "sliding_window": 64, "max_window_layers": 2}
    assert not_native(config) is None


def test_attention_without_padding_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """The block for GPUs, with an attention of the same signature in the place of their kernel."""

    def attention(q: Tensor, k: Tensor, v: Tensor, *offsets: Any, window_size: Any, enable_gqa: bool) -> Tensor:
        assert len(q) == len(k) == len(v) == 18 and window_size == (-1, 0) and enable_gqa
        starts, same, longest, again = offsets
        assert starts.dtype == torch.int32 and torch.equal(starts, same) and longest == again == 11
        parts = []
        for begin, end in itertools.pairwise(starts.tolist()):
            heads = (x[begin:end].transpose(0, 1) for x in (q, k, v))
            parts.append(F.scaled_dot_product_attention(*heads, is_causal=True, enable_gqa=True).transpose(0, 1))
        return torch.cat(parts)

    monkeypatch.setattr(_attention, "variable_attention", lambda: attention)
    generator = torch.Generator().manual_seed(0)
    query, key, value = (torch.randn(32, heads, 8, generator=generator) for heads in (4, 2, 2))
    block = _attention.VariableBlock(torch.tensor([0, 7, 18], dtype=torch.int32), 18, 11)
    given = block(0, query, key, value)
    expected = _attention.attend_packed([7, 11], torch.zeros(32, 1))(0, query, key, value)
    torch.testing.assert_close(given[:18], expected[:18])
    assert not given[18:].any()


def test_an_empty_sequence_takes_no_tokens(body: Body) -> None:
    one, other = random_sequences(6, 7)
    packed = Packed(token_ids_L=torch.cat([one, other]), starts=(0, 6, 6, 13))
    assert torch.equal(body.hidden(packed), body.hidden(pack([one, other])))
