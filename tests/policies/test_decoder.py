import copy
import itertools
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from posttrain import kernels
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
    # Each is up to 1e-5 away from what float64 gives.
    torch.testing.assert_close(packed_logits(policy.body, MIXED), expected, atol=2e-5, rtol=0)


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
    assert cache.lengths.tolist() == [0, 300, 0, 40, 0, 0, 129]


def test_a_prompt_is_computed_once_for_a_group(body: Body) -> None:
    prompt, new = random_sequences(21, 1)
    cache = body.new_cache(4, 32)
    body.extend(cache, [0, 2], pack([random_sequences(300, seed=3)[0], prompt]))
    cache.release(0)
    cache.copy(2, [0, 2, 3])
    assert cache.lengths.tolist() == [21, 0, 21, 21]
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
def test_what_is_not_native_is_reported(changes: dict[str, Any], reason: str) -> None:
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
        assert len(q) == 18 and len(k) == len(v) and window_size == (-1, 0) and enable_gqa
        starts, key_starts, longest, longest_keys = offsets
        assert starts.dtype == key_starts.dtype == torch.int32
        spans, key_spans = (list(itertools.pairwise(x.tolist())) for x in (starts, key_starts))
        assert longest == max(b - a for a, b in spans) and longest_keys == max(b - a for a, b in key_spans)
        parts = []
        for (begin, end), (first, last) in zip(spans, key_spans, strict=True):
            q_HQd, k_HSd, v_HSd = (x.transpose(0, 1) for x in (q[begin:end], k[first:last], v[first:last]))
            seen = torch.ones(end - begin, last - first).tril(last - first - end + begin).bool()  # the last sees all
            out = F.scaled_dot_product_attention(q_HQd, k_HSd, v_HSd, attn_mask=seen, enable_gqa=True)
            parts.append(out.transpose(0, 1))
        return torch.cat(parts)

    monkeypatch.setattr(_attention, "variable_attention", lambda: attention)
    generator = torch.Generator().manual_seed(0)
    query, key, value = (torch.randn(32, heads, 8, generator=generator) for heads in (4, 2, 2))
    ids_L = torch.zeros(18, dtype=torch.int64)
    alone = Packed(token_ids_L=ids_L, starts=(0, 7, 18))
    given = _attention._variable_block(alone, torch.device("cpu"))(0, query, key, value)
    expected = _attention.attend_packed(alone, torch.zeros(32, 1, dtype=torch.float64))(0, query, key, value)
    torch.testing.assert_close(given[:18], expected[:18])
    assert not given[18:].any()
    # The same rows as a prompt of 7 that two continue, by 5 and by 6.
    shared = Packed(token_ids_L=ids_L, starts=(0, 7, 12, 18), after=(-1, 0, 0))
    given = _attention._variable_block(shared, torch.device("cpu"))(0, query, key, value)
    whole, rows = Packed(token_ids_L=torch.zeros(32, dtype=torch.int64), starts=(0, 7, 19, 32)), [*range(7), *range(12)]
    rows += [*range(7), *range(12, 18)]
    attend = _attention.attend_packed(whole, torch.zeros(32, 1, dtype=torch.float64))
    expected = attend(0, query[rows], key[rows], value[rows])
    torch.testing.assert_close(given[:18], expected[[*range(7), *range(14, 19), *range(26, 32)]])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_prompt_that_several_continue_gives_each_what_it_gets_alone(body: Body, dtype: torch.dtype) -> None:
    prompt, one, other, stranger = random_sequences(37, 20, 33, 18)
    shared = Packed(
        token_ids_L=torch.cat([prompt, one, stranger, other]), starts=(0, 37, 57, 75, 108), after=(-1, 0, -1, 0)
    )
    alone = [torch.cat([prompt, one]), stranger, torch.cat([prompt, other])]
    model = copy.deepcopy(body).to(dtype).requires_grad_()
    states = model.hidden(shared)
    expected = model.hidden(pack(alone)).split([57, 18, 70])
    same = torch.equal if dtype == torch.float32 and kernels.usable(torch.zeros(1)) else torch.allclose
    assert same(states[:57], expected[0]) and same(states[57:75], expected[1]) and same(states[75:], expected[2][37:])
    up = torch.randn(states.shape, generator=torch.Generator().manual_seed(1), dtype=dtype)
    gradients = []
    for outputs, given in (
        ([states], [up]),
        (list(model.hidden(pack(alone)).split([57, 18, 70])), [up[:57], up[57:75], F.pad(up[75:], (0, 0, 37, 0))]),
    ):
        model.zero_grad()
        torch.autograd.backward(outputs, given)
        gradients.append(torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None]))
    assert (gradients[0] - gradients[1]).abs().max() < 1e-5 * gradients[1].abs().max()


def test_what_comes_before_a_token_may_be_the_end_of_a_shared_prompt() -> None:
    packed = Packed(token_ids_L=torch.arange(12), starts=(0, 4, 7, 7, 12), after=(-1, 0, -1, 0))
    assert packed.past == [0, 4, 0, 4]
    assert packed.before(torch.tensor([1, 4, 5, 7, 8])).tolist() == [0, 3, 4, 3, 7]
    with pytest.raises(AssertionError, match="nothing before it"):
        packed.before(torch.tensor([0]))
    alone, places = packed.alone()
    assert alone.starts == (0, 4, 11, 11, 20) and alone.after is None
    assert alone.token_ids_L.tolist() == [*range(4), *range(7), *range(4), *range(7, 12)]
    assert alone.token_ids_L[places].tolist() == list(range(12))


def test_an_empty_sequence_takes_no_tokens(body: Body) -> None:
    one, other = random_sequences(6, 7)
    packed = Packed(token_ids_L=torch.cat([one, other]), starts=(0, 6, 6, 13))
    assert torch.equal(body.hidden(packed), body.hidden(pack([one, other])))
