import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from posttrain.cluster._weights import digest_of, size_of
from posttrain.errors import UserError
from posttrain.models import LoRA
from posttrain.policies import Packed
from posttrain.policies.lora import adapters
from posttrain.policies.transformers_body import TransformersBody
from posttrain.signals import ENTROPY, LOGP
from tests.policies.made_models import (
    assert_same_whatever_is_beside,
    load,
    make_folder,
    pack,
    packed_logits,
    random_sequences,
    sampled_states,
    transformers_logits,
)

GPT2 = {"n_embd": 48, "n_layer": 2, "n_head": 4}
OTHERS: dict[str, tuple[str, dict[str, Any]]] = {
    "gpt2": ("GPT2Config", GPT2),
    "mistral with a window": ("MistralConfig", {"sliding_window": 24, "head_dim": 12}),
    "qwen2 with windows": ("Qwen2Config", {"use_sliding_window": True, "sliding_window": 16, "max_window_layers": 1}),
    "gemma": ("GemmaConfig", {"head_dim": 12}),
    "gemma2 with soft caps": ("Gemma2Config", {"head_dim": 12, "sliding_window": 16, "final_logit_softcapping": 5.0}),
    "granite with scaled logits": ("GraniteConfig", {"logits_scaling": 3.0}),
    "cohere with scaled logits": ("CohereConfig", {"logit_scale": 0.5}),
    "mamba": ("MambaConfig", {"max_position_embeddings": 512}),
}
MIXED = random_sequences(5, 40, 1, 100, 17, 17)
PROMPTS = [2, 28, 1, 70, 9, 9]


@pytest.fixture(scope="module")
def gpt2(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_folder(tmp_path_factory.mktemp("gpt2"), *OTHERS["gpt2"])


@pytest.mark.parametrize("name", OTHERS)
def test_logits_and_cache_are_those_of_transformers(name: str, tmp_path: Path) -> None:
    folder = make_folder(tmp_path, *OTHERS[name])
    body = load(folder).body
    assert isinstance(body, TransformersBody)
    assert body.recomputes == (name == "mamba")
    expected = transformers_logits(folder, MIXED)
    torch.testing.assert_close(packed_logits(body, MIXED), expected, atol=1e-5, rtol=0)
    parts = expected.log_softmax(-1).split([len(ids) for ids in MIXED])
    for states, logp, prompt in zip(sampled_states(body, MIXED, PROMPTS), parts, PROMPTS, strict=True):
        given = body.logits(states).detach().log_softmax(-1)
        torch.testing.assert_close(given, logp[prompt - 1 :], atol=1e-5, rtol=0)


@pytest.mark.parametrize("name", ["gpt2", "mistral with a window"])
def test_neighbours_have_no_effect(name: str, tmp_path: Path) -> None:
    body = load(make_folder(tmp_path, *OTHERS[name])).body

    def learned(sequences: list[Tensor]) -> list[Tensor]:
        return list(body.hidden(pack(sequences)).detach().split([len(ids) for ids in sequences]))

    def sampled(sequences: list[Tensor]) -> list[Tensor]:
        return sampled_states(body, sequences, [max(1, len(ids) - 9) for ids in sequences])

    assert_same_whatever_is_beside(learned, MIXED)
    assert_same_whatever_is_beside(sampled, MIXED)


def test_slots_are_copied_continued_and_released(gpt2: Path) -> None:
    body = load(gpt2).body
    (ids,) = random_sequences(60)
    states = body.hidden(pack([ids])).detach()
    cache = body.new_cache(4, 128)
    body.extend(cache, [2], pack([ids[:30]]))
    cache.copy(2, [0, 2, 3])
    given = body.extend(cache, [0, 3], pack([ids[30:31], ids[30:60]]))
    torch.testing.assert_close(given, states[[30, 59]], atol=1e-5, rtol=0)
    assert cache.lengths.tolist() == [31, 0, 30, 60]
    cache.release(3)
    torch.testing.assert_close(body.extend(cache, [3], pack([ids[:5]]))[0], states[4], atol=1e-5, rtol=0)


def test_sequences_are_never_padded_beyond_the_context(tmp_path: Path) -> None:
    folder = make_folder(tmp_path, "GPT2Config", GPT2 | {"max_position_embeddings": 45})
    body, sequences = load(folder).body, random_sequences(45, 33)
    assert body.context == 45
    expected = transformers_logits(folder, sequences)
    torch.testing.assert_close(packed_logits(body, sequences), expected, atol=1e-5, rtol=0)
    states = sampled_states(body, sequences, [35, 33])
    torch.testing.assert_close(body.logits(states[0]).detach(), expected[34:45], atol=1e-5, rtol=0)


def test_an_empty_sequence_takes_no_tokens(gpt2: Path) -> None:
    body = load(gpt2).body
    one, other = random_sequences(6, 7)
    packed = Packed(token_ids_L=torch.cat([one, other]), starts=(0, 6, 6, 13))
    assert torch.equal(body.hidden(packed), body.hidden(pack([one, other])))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("name", ["gpt2", "gemma"])
def test_loading_and_saving_changes_no_bit(name: str, dtype: torch.dtype, tmp_path: Path) -> None:
    source = make_folder(tmp_path / "source", *OTHERS[name], dtype=dtype)
    load(source).save(tmp_path / "saved")
    before, after = (load_file(p / "model.safetensors") for p in (source, tmp_path / "saved"))
    assert before.keys() == after.keys()
    for tensor, same in zip(before.values(), after.values(), strict=True):
        assert tensor.dtype == same.dtype and torch.equal(tensor, same)
    assert (tmp_path / "saved" / "config.json").read_bytes() == (source / "config.json").read_bytes()


def test_what_was_trained_and_saved_is_the_same_model_in_transformers(tmp_path: Path) -> None:
    policy = load(make_folder(tmp_path / "source", *OTHERS["gpt2"], dtype=torch.bfloat16), trained=True)
    positions = torch.arange(1, 40)
    loss = policy.evaluate(pack(MIXED[1:2]), positions, frozenset({ENTROPY}))[LOGP].sum()
    loss.backward()
    torch.optim.SGD(policy.parameters(), lr=1e-3).step()
    logits = packed_logits(policy.body, MIXED)
    policy.save(tmp_path / "saved")
    assert json.loads((tmp_path / "saved" / "config.json").read_text())["dtype"] == "float32"
    torch.testing.assert_close(transformers_logits(tmp_path / "saved", MIXED), logits, atol=1e-5, rtol=0)


def test_adapters_work_here_as_well(tmp_path: Path) -> None:
    source = make_folder(tmp_path / "source", *OTHERS["gemma"])
    policy = load(source, trained=True, lora=LoRA(rank=2, targets=("q_proj", "down_proj")))
    assert len(adapters(policy.body)) == 4
    for name, parameter in policy.named_parameters():
        assert parameter.requires_grad == ("lora_" in name)
        if name.endswith("lora_B"):
            parameter.data.fill_(0.03)
    logits = packed_logits(policy.body, MIXED)
    assert (logits - packed_logits(load(source).body, MIXED)).abs().max() > 0.01
    policy.save(tmp_path / "saved")
    for read in (load(tmp_path / "saved"), load(tmp_path / "saved" / "adapter", base=str(source))):
        torch.testing.assert_close(packed_logits(read.body, MIXED), logits, atol=1e-5, rtol=0)
    torch.testing.assert_close(transformers_logits(tmp_path / "saved", MIXED), logits, atol=1e-5, rtol=0)


def test_a_missing_package_is_named(gpt2: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(UserError, match=r"model_type is 'gpt2'.*pip install 'posttrain\[transformers\]'"):
        load(gpt2)


def test_what_does_not_fit_is_reported(tmp_path: Path) -> None:
    folder = make_folder(tmp_path, *OTHERS["gpt2"])
    tensors = load_file(folder / "model.safetensors")
    name = "transformer.h.1.ln_1.weight"
    save_file({n: t for n, t in tensors.items() if n != name}, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(UserError, match=f"lacks the tensor '{name}'"):
        load(folder)
    save_file(tensors | {"odd": torch.ones(2)}, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(UserError, match="has no place for the tensor 'odd'"):
        load(folder)
    save_file(tensors | {name: torch.ones(3)}, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(UserError, match="transformers cannot load"):
        load(folder)
    save_file(tensors | {name: tensors[name] / 0}, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(UserError, match="the model's logits are not finite"):
        load(folder)
    (folder / "config.json").write_text(json.dumps({"model_type": "no_such_model"}))
    with pytest.raises(UserError, match="transformers cannot load"):
        load(folder)


def test_code_of_a_model_is_never_run(tmp_path: Path) -> None:
    folder = make_folder(tmp_path, *OTHERS["gpt2"])
    config = {"model_type": "own", "auto_map": {"AutoConfig": "own.Config", "AutoModelForCausalLM": "own.Model"}}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "own.py").write_text(f"open({str(tmp_path / 'ran')!r}, 'w')")
    with pytest.raises(UserError, match="transformers cannot load"):
        load(folder)
    assert not (tmp_path / "ran").exists()


def test_a_tied_matrix_is_saved_and_sent_once(gpt2: Path, tmp_path: Path) -> None:
    """A full state dict has it twice, under two names, and safetensors would write both."""
    policy = load(gpt2)
    state, own = policy.body.state_dict(), dict(policy.named_parameters())
    twice = len(state) - len({tensor.data_ptr() for tensor in state.values()})
    assert twice == 1 and len(own) + twice == len(state)
    policy.save(tmp_path / "saved")
    saved = load_file(tmp_path / "saved" / "model.safetensors")
    assert len(saved) == len(own)
    assert sum(t.nbytes for t in saved.values()) == sum(p.nbytes for p in own.values()) == size_of(policy)
    assert digest_of(load(tmp_path / "saved")) == digest_of(policy)
