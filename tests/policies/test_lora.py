import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from posttrain.errors import UserError
from posttrain.models import LoRA, Model
from posttrain.policies.language_model import LanguageModelPolicy
from posttrain.policies.loading import load_policy
from posttrain.policies.lora import LoRALinear, adapters, merged_state
from tests.policies.made_models import DECODERS, load, make_folder, pack, packed_logits, random_sequences

SEQUENCES = random_sequences(9, 40, 3)
SMALL = LoRA(rank=3, alpha=12.0, targets=("q_proj", "v_proj", "down_proj"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_folder(tmp_path_factory.mktemp("llama"), *DECODERS["llama biases"])


def trained(folder: Path, lora: LoRA = SMALL) -> LanguageModelPolicy:
    """A policy whose adapters have been changed."""
    policy = load(folder, trained=True, lora=lora)
    generator = torch.Generator().manual_seed(5)
    for parameter in policy.parameters():
        if parameter.requires_grad:
            parameter.data.add_(0.05 * torch.randn(parameter.shape, generator=generator))
    return policy


def test_nothing_changes_at_first(folder: Path) -> None:
    policy = load(folder, trained=True, lora=LoRA())
    assert torch.equal(packed_logits(policy.body, SEQUENCES), packed_logits(load(folder).body, SEQUENCES))


def test_the_update_is_alpha_over_rank_times_b_a() -> None:
    base = torch.nn.Linear(2, 1)
    layer = LoRALinear(base, "x", rank=2, alpha=6.0)
    with torch.no_grad():
        base.weight.copy_(torch.tensor([[10.0, 20.0]]))
        base.bias.fill_(0.5)
        layer.lora_A.copy_(torch.tensor([[1.0, 2.0], [0.0, -1.0]]))
        layer.lora_B.copy_(torch.tensor([[0.1, 1.0]]))
    # W + 3 * (0.1 * [1, 2] + 1 * [0, -1]) = [10.3, 17.6]
    torch.testing.assert_close(layer.merged(), torch.tensor([[10.3, 17.6]]))
    torch.testing.assert_close(layer(torch.tensor([[1.0, 1.0]])), torch.tensor([[28.4]]))


def test_adapters_start_in_the_range_of_kaiming_and_the_same_each_time(folder: Path) -> None:
    one, other = (adapters(load(folder, trained=True, lora=LoRA(rank=8)).body) for _ in range(2))
    assert len(one) == 14
    seen: set[float] = set()
    for name, layer in one.items():
        assert torch.equal(layer.lora_A, other[name].lora_A)
        bound = layer.in_features**-0.5
        assert 0.9 * bound < layer.lora_A.abs().max() <= bound
        assert abs(layer.lora_A.mean()) < 0.15 * bound
        assert not layer.lora_B.any()
        seen.add(layer.lora_A[0, 0].item())
    assert len(seen) == len(one)


def test_adapters_alone_are_trained(folder: Path) -> None:
    policy = load(folder, trained=True, lora=SMALL)
    free = {name for name, parameter in policy.named_parameters() if parameter.requires_grad}
    assert free == {
        f"body.model.layers.{layer}.{part}.{ab}"
        for layer in (0, 1)
        for part in ("self_attn.q_proj", "self_attn.v_proj", "mlp.down_proj")
        for ab in ("lora_A", "lora_B")
    }
    policy.body.hidden(pack(SEQUENCES)).sum().backward()
    assert all((parameter.grad is not None) == parameter.requires_grad for parameter in policy.parameters())
    critic = load(folder, trained=True, lora=SMALL, head="value")
    assert critic.value_head is not None and critic.value_head.weight.requires_grad


def test_saved_folders_hold_the_merged_model_and_the_adapter(folder: Path, tmp_path: Path) -> None:
    policy = trained(folder)
    logits = packed_logits(policy.body, SEQUENCES)
    assert (logits - packed_logits(load(folder).body, SEQUENCES)).abs().max() > 0.05
    policy.save(tmp_path)
    assert load_file(tmp_path / "model.safetensors").keys() == load_file(folder / "model.safetensors").keys()
    adapted = load(tmp_path / "adapter", base=str(folder))
    for read in (load(tmp_path), adapted):
        torch.testing.assert_close(packed_logits(read.body, SEQUENCES), logits, atol=1e-5, rtol=0)
    assert (adapted.lora, adapters(adapted.body)) == (None, {})


def test_an_adapter_chooses_no_model_outside_its_own_folder(folder: Path, tmp_path: Path) -> None:
    trained(folder).save(tmp_path)
    adapter = tmp_path / "adapter"
    with pytest.raises(UserError, match=r"which is not in its folder\. .* name the model yourself: models\.ROLE\.base"):
        load(adapter)
    shutil.copytree(folder, adapter / "inside")
    path = adapter / "adapter_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"base_model_name_or_path": "inside"}))
    assert load(adapter).origin.source == str(adapter / "inside")
    shutil.rmtree(adapter / "inside")
    (adapter / "inside").symlink_to(folder)
    with pytest.raises(UserError, match="which is not in its folder"):
        load(adapter)
    with pytest.raises(UserError, match="is no adapter, which has no base; leave base out"):
        load(folder, base=str(folder))


def test_an_adapter_is_trained_on_where_it_was(folder: Path, tmp_path: Path) -> None:
    policy = trained(folder)
    policy.save(tmp_path / "one")
    again = load(tmp_path / "one" / "adapter", base=str(folder), trained=True, lora=SMALL)
    assert torch.equal(packed_logits(again.body, SEQUENCES), packed_logits(policy.body, SEQUENCES))
    assert {n for n, p in again.named_parameters() if p.requires_grad} == {
        n for n, p in policy.named_parameters() if p.requires_grad
    }
    again.save(tmp_path / "two")
    for name in ("adapter/adapter_model.safetensors", "model.safetensors"):
        assert (tmp_path / "one" / name).read_bytes() == (tmp_path / "two" / name).read_bytes()
    with pytest.raises(UserError, match="has rank 3, alpha 12 and targets down_proj, q_proj, v_proj"):
        load(tmp_path / "one" / "adapter", base=str(folder), trained=True, lora=LoRA(rank=4))


def test_an_untrained_adapter_changes_no_bit_of_the_saved_model(tmp_path: Path) -> None:
    source = make_folder(tmp_path / "source", *DECODERS["qwen3"], dtype=torch.bfloat16)
    load(source, trained=True, lora=LoRA()).save(tmp_path / "saved")
    assert (tmp_path / "saved" / "model.safetensors").read_bytes() == (source / "model.safetensors").read_bytes()


def test_merging_leaves_biases_and_other_layers_alone(folder: Path) -> None:
    state, before = merged_state(trained(folder).body), load(folder).body.state_dict()
    changed = {name for name, tensor in state.items() if not torch.equal(tensor, before[name])}
    assert state.keys() == before.keys()
    assert {name.split(".")[-2] for name in changed} == set(SMALL.targets)
    assert all(name.endswith(".weight") for name in changed)


@pytest.mark.parametrize("name", ["llama biases", "qwen3 tied"])
def test_peft_reads_our_adapters(name: str, tmp_path: Path) -> None:
    policy = trained(make_folder(tmp_path / "source", *DECODERS[name]))
    policy.save(tmp_path / "saved")
    torch.testing.assert_close(
        _peft_logits(tmp_path / "source", tmp_path / "saved" / "adapter"),
        packed_logits(policy.body, SEQUENCES),
        atol=1e-5,
        rtol=0,
    )
    settings = json.loads((tmp_path / "saved" / "adapter" / "adapter_config.json").read_text())
    assert settings["base_model_name_or_path"] == str(tmp_path / "source")


def test_we_read_the_adapters_of_peft(folder: Path, tmp_path: Path) -> None:
    import peft
    from transformers import AutoModelForCausalLM

    settings = peft.LoraConfig(
        r=4, lora_alpha=6, target_modules=["k_proj", "up_proj"], init_lora_weights=False, task_type="CAUSAL_LM"
    )
    base: Any = AutoModelForCausalLM.from_pretrained(folder)
    peft.get_peft_model(base, settings).save_pretrained(tmp_path)
    policy = load(tmp_path, base=str(folder))
    torch.testing.assert_close(packed_logits(policy.body, SEQUENCES), _peft_logits(folder, tmp_path), atol=1e-5, rtol=0)
    assert policy.tokenizer.size == 261


def test_an_adapters_own_tokenizer_is_used_and_saved(folder: Path, tmp_path: Path) -> None:
    trained(folder).save(tmp_path / "one")
    adapter = tmp_path / "one" / "adapter"
    shutil.copy(folder / "tokenizer.json", adapter)
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    (adapter / "tokenizer_config.json").write_text(json.dumps(settings | {"chat_template": "ours"}))
    policy = load(adapter, base=str(folder))
    assert policy.tokenizer.render_chat([]) == "ours"
    policy.save(tmp_path / "two")
    assert load(tmp_path / "two").tokenizer.render_chat([]) == "ours"


def _peft_logits(base: Path, adapter: Path) -> Tensor:
    import peft
    from transformers import AutoModelForCausalLM

    model: Any = peft.PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base), adapter).eval()
    with torch.no_grad():
        return torch.cat([model(input_ids=ids[None]).logits[0] for ids in SEQUENCES])


def test_targets_are_layers_of_the_model(folder: Path) -> None:
    with pytest.raises(UserError, match="no linear layer 'q_porj'; did you mean 'q_proj'"):
        load(folder, trained=True, lora=LoRA(targets=("q_porj",)))
    assert len(adapters(load(folder, trained=True, lora=LoRA(targets=("lm_head",))).body)) == 1


def test_an_adapted_output_layer_is_used(folder: Path) -> None:
    policy = trained(folder, LoRA(targets=("lm_head",)))
    assert (packed_logits(policy.body, SEQUENCES) - packed_logits(load(folder).body, SEQUENCES)).abs().max() > 0.05


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"use_dora": True}, r"not a plain LoRA \(use_dora\)"),
        ({"peft_type": "IA3"}, r"not a plain LoRA \(peft_type IA3, bias none\)"),
        ({"base_model_name_or_path": None}, "names no base_model_name_or_path"),
        ({"base_model_name_or_path": "gone"}, "the model 'gone', which is not in its folder"),
        ({"base_model_name_or_path": ["a"]}, "names no base_model_name_or_path"),
        ({"base_model_name_or_path": "a\x00b"}, "embedded null byte"),
        ({"r": 2}, r"has r 2, but its tensor '.*lora_A.weight' is \[3, "),
        ({"r": 10**9}, r"has r 1000000000, but its tensor '.*lora_A.weight' is \[3, "),
        ({"r": None}, "r is None; it is a whole number from 1"),
        ({"r": [3]}, r"r is \[3\]; it is a whole number from 1"),
        ({"lora_alpha": 10**400}, "lora_alpha is 1000.*; it is a number above 0"),
        ({"lora_alpha": None}, "lora_alpha is None; it is a number above 0"),
    ],
)
def test_what_is_wrong_with_an_adapter_is_reported(
    folder: Path, tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    trained(folder).save(tmp_path)
    path = tmp_path / "adapter" / "adapter_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))
    with pytest.raises(UserError, match=message):
        load(tmp_path / "adapter")


def test_what_is_wrong_with_an_adapters_tensors_is_reported(folder: Path, tmp_path: Path) -> None:
    trained(folder).save(tmp_path)
    path = tmp_path / "adapter" / "adapter_model.safetensors"
    tensors = load_file(path)
    save_file(dict(list(tensors.items())[1:]), path)
    with pytest.raises(UserError, match=r"tensor 'base_model\.model\..*' is missing"):
        load(tmp_path / "adapter", base=str(folder))
    save_file(tensors | {"base_model.model.model.layers.7.q_proj.lora_A.weight": torch.ones(3, 4)}, path)
    with pytest.raises(UserError, match=r"layers\.7.*' is not of this model"):
        load(tmp_path / "adapter", base=str(folder))
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(UserError, match="damaged or cut short"):
        load(tmp_path / "adapter", base=str(folder))
    path.unlink()
    with pytest.raises(UserError, match=r"has no adapter_model\.safetensors"):
        load(tmp_path / "adapter", base=str(folder))


def test_trained_weights_are_rank_times_both_sides_of_every_projection() -> None:
    policy = load_policy("judge", Model(source="pebble", trained=True, lora=LoRA(rank=16)), {}, torch.device("cpu"))
    sides = 128 + 128, 128 + 64, 128 + 64, 128 + 128, 128 + 384, 128 + 384, 384 + 128  # q, k, v, o, gate, up, down
    trained = sum(parameter.numel() for parameter in policy.parameters() if parameter.requires_grad)
    assert trained == 4 * 16 * sum(sides), "four layers; the share of a model depends on its shape"
