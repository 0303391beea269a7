import json

import gguf
import pytest
import torch
from gguf import GGMLQuantizationType as Kind

from posttrain.errors import UserError
from posttrain.policies._shape import Rope
from posttrain.policies.folder import BUNDLED, open_folder
from posttrain.policies.gguf.reading import open_model
from posttrain.runs.changes import GONE, digest_of_model
from posttrain.types import Message
from tests.policies.gguf.gguf_files import logits, small_folder, write_gguf
from tests.policies.made_models import load, make_folder, transformers_logits

PEBBLE = BUNDLED / "pebble"
SEQUENCES = ([81, 58, 32, 52, 55], [1, 200, 3], list(range(40)))
STRINGS = ("", "Q: 47+35-8\nA:", "naïve  café\t\n", "<|end|> is text", "日本語 🙂", "don't  stop", "\x00\x7f")


@pytest.mark.parametrize("architecture", ["llama", "qwen3"])
@pytest.mark.parametrize("tied", [True, False])
def test_logits_are_those_of_the_folder(tmp_path, architecture, tied):
    folder = small_folder(tmp_path / "model", architecture, tied=tied, kv_heads=1)
    read = load(write_gguf(tmp_path / "m.gguf", folder))
    assert torch.equal(logits(read, *SEQUENCES), logits(load(folder), *SEQUENCES))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["Qwen2Config", "LlamaConfig"])
def test_biases_are_read_and_transformers_agrees(tmp_path, name):
    settings = {"head_dim": 12} | ({"attention_bias": True, "mlp_bias": True} if name == "LlamaConfig" else {})
    folder = make_folder(tmp_path / "model", name, settings)
    ids = [torch.tensor(sequence) for sequence in SEQUENCES]
    read = load(write_gguf(tmp_path / "m.gguf", folder))
    assert torch.allclose(logits(read, *SEQUENCES), transformers_logits(folder, ids), atol=1e-4)


@pytest.mark.slow
def test_transformers_reads_the_same_from_the_file(tmp_path):
    from transformers import AutoModelForCausalLM

    path = write_gguf(tmp_path / "m.gguf", small_folder(tmp_path / "model", tied=False), Kind.Q8_0)
    other = AutoModelForCausalLM.from_pretrained(tmp_path, gguf_file=path.name, dtype=torch.float32).eval()
    with torch.no_grad():
        expected = torch.cat([other(input_ids=torch.tensor([ids])).logits[0] for ids in SEQUENCES])
    assert torch.allclose(logits(load(path), *SEQUENCES), expected, atol=1e-4)


def test_the_bundled_model_is_the_same_with_its_tokenizer_and_template(tmp_path):
    read, original = load(write_gguf(tmp_path / "pebble.gguf", PEBBLE)), load(PEBBLE)
    assert torch.equal(logits(read, *SEQUENCES), logits(original, *SEQUENCES))
    for text in STRINGS:
        assert read.tokenizer.encode(text).tolist() == original.tokenizer.encode(text).tolist()
    chat = [Message(role="system", content="short"), Message(role="user", content="hello <|end|>")]
    assert read.tokenizer.encode_chat(chat).tolist() == original.tokenizer.encode_chat(chat).tolist()
    assert read.tokenizer.end_token_ids == original.tokenizer.end_token_ids
    assert read.tokenizer.pad_token_id == original.tokenizer.pad_token_id


def test_it_is_saved_as_an_ordinary_folder(tmp_path):
    read = load(write_gguf(tmp_path / "pebble.gguf", PEBBLE, Kind.F16))
    read.save(tmp_path / "saved")
    saved = open_folder(tmp_path / "saved")
    assert {str(t.dtype) for name, t in saved.tensors() if "proj" in name} == {"torch.float16"}
    again = load(tmp_path / "saved")
    assert torch.equal(logits(again, *SEQUENCES), logits(read, *SEQUENCES))
    assert again.tokenizer.encode("12 <|end|>").tolist() == read.tokenizer.encode("12 <|end|>").tolist()
    assert again.tokenizer.end_token_ids == read.tokenizer.end_token_ids
    config = json.loads((tmp_path / "saved" / "config.json").read_text())
    assert (config["rms_norm_eps"], config["rope_theta"]) == (1e-6, 10000.0), "the decimals, not their float32"


@pytest.mark.parametrize(
    ("kind", "error"), [(Kind.BF16, 2**-8), (Kind.F16, 2**-11), (Kind.Q8_0, 1 / 127), (Kind.Q4_1, 1 / 15)]
)
def test_dequantized_weights_are_within_the_error_of_their_type(tmp_path, kind, error):
    """Half a step of a block: its range over the number of steps. Floats round by half of their last bit."""
    folder = small_folder(tmp_path / "model")
    exact = dict(open_folder(folder).tensors())
    for name, tensor in open_model(write_gguf(tmp_path / "m.gguf", folder, kind)).tensors():
        blocks, other = exact[name].reshape(-1, 32), tensor.float().reshape(-1, 32)
        assert tensor.shape == exact[name].shape
        spread = blocks.amax(1) - blocks.amin(1) if kind is Kind.Q4_1 else blocks.abs().amax(1)
        assert ((blocks - other).abs().amax(1) <= 0.51 * error * spread + 2e-3 * blocks.abs().amax(1)).all(), name
        assert kind is Kind.F32 or tensor.dim() == 1 or not torch.equal(tensor.float(), exact[name])


def test_scaling_of_positions(tmp_path):
    folder = small_folder(tmp_path / "model")
    linear = write_gguf(
        tmp_path / "linear.gguf",
        folder,
        more=lambda w: (
            w.add_string("llama.rope.scaling.type", "linear"),
            w.add_float32("llama.rope.scaling.factor", 4.0),
        ),
    )
    assert open_model(linear).config["rope_scaling"] == {"rope_type": "linear", "factor": 4.0}

    def factors(settings):
        rope = Rope(type="llama3", theta=10000.0, settings=settings)
        plain = Rope(type="default", theta=10000.0, settings={})
        return (plain.frequencies(32, 512)[0] / rope.frequencies(32, 512)[0]).numpy()

    llama3 = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
    path = write_gguf(
        tmp_path / "llama3.gguf", folder, more=lambda w: w.add_tensor("rope_freqs.weight", factors(llama3))
    )
    assert open_model(path).config["rope_scaling"] == {"rope_type": "llama3"} | llama3
    load(path)
    odd = factors(llama3 | {"low_freq_factor": 2.0})
    path = write_gguf(tmp_path / "odd.gguf", folder, more=lambda w: w.add_tensor("rope_freqs.weight", odd))
    with pytest.raises(UserError, match=r"not the scaling of positions of Llama 3\.1"):
        load(path)


def test_a_folder_that_holds_one(tmp_path):
    held = tmp_path / "held"
    held.mkdir()
    write_gguf(held / "m.GGUF", PEBBLE)
    read = load(held)
    assert torch.equal(logits(read, *SEQUENCES), logits(load(PEBBLE), *SEQUENCES))
    write_gguf(held / "n.gguf", PEBBLE)
    with pytest.raises(UserError, match=r"holds 2 GGUF files \(m\.GGUF, n\.gguf\); name the one that is meant"):
        load(held)


def test_a_tokenizer_beside_the_file_replaces_one_that_is_not_read(tmp_path):
    path = write_gguf(tmp_path / "m.gguf", PEBBLE, pre="chameleon")
    with pytest.raises(UserError, match=r"pre-tokenizer 'chameleon', which is not known.*tokenizer\.json"):
        load(path)
    for name in ("tokenizer.json", "tokenizer_config.json"):
        (tmp_path / name).write_bytes((PEBBLE / name).read_bytes())
    read = load(tmp_path)
    assert read.tokenizer.encode("12").tolist() == load(PEBBLE).tokenizer.encode("12").tolist()
    assert read.tokenizer.end_token_ids == {257}


def test_adapters_are_trained_on_it_and_read_again(tmp_path):
    from posttrain.models import LoRA, Model
    from posttrain.policies.loading import load_policy

    path = write_gguf(tmp_path / "m.gguf", small_folder(tmp_path / "model"))
    policy = load(path, lora=LoRA(rank=2), trained=True)
    with torch.no_grad():
        for name, parameter in policy.named_parameters():
            if "lora_" in name:
                parameter.add_(0.1)
    policy.save(tmp_path / "out")
    model = Model(source=str(tmp_path / "out" / "adapter"), base=str(path))
    again = load_policy("policy", model, {}, torch.device("cpu"))
    assert torch.allclose(logits(again, *SEQUENCES), logits(policy, *SEQUENCES), atol=1e-5)
    assert not torch.allclose(logits(again, *SEQUENCES), logits(load(path), *SEQUENCES), atol=1e-2)


def test_a_run_notices_another_file(tmp_path):
    path = write_gguf(tmp_path / "m.gguf", PEBBLE)
    first = digest_of_model(path)
    assert first != GONE and first == digest_of_model(path) == digest_of_model(tmp_path)
    write_gguf(path, PEBBLE, Kind.F16)
    assert digest_of_model(path) != first
    path.unlink()
    assert digest_of_model(path) == GONE


REFUSED = {
    "gemma": (lambda w: w.add_string("general.architecture", "gemma2"), "architecture 'gemma2', which is not read"),
    "experts": (lambda w: w.add_uint32("llama.expert_count", 8), r"llama\.expert_count is 8, a setting that"),
    "unknown": (lambda w: w.add_float32("llama.attention.scale", 0.5), r"llama\.attention\.scale is 0\.5, a setting"),
    "heads": (lambda w: w.add_array("llama.attention.head_count", [2, 4]), r"head_count is \[2, 4\]; .* every layer"),
    "layers": (lambda w: w.add_uint64("llama.block_count", 2**60), r"block_count is 1152921504606846976, but the file"),
    "zero": (lambda w: w.add_uint32("llama.embedding_length", 0), r"embedding_length is 0; the decoder needs one"),
    "text": (lambda w: w.add_string("llama.rope.freq_base", "x"), r"rope\.freq_base is 'x'; it is a number"),
    "nan": (lambda w: w.add_float32("llama.rope.freq_base", float("nan")), "rope_theta is nan"),
    "split": (lambda w: w.add_uint16("split.count", 3), "is one of 3 files of a split model"),
    "rope": (lambda w: w.add_string("llama.rope.scaling.type", "longrope"), "'longrope'; read are none, linear, yarn"),
    "dims": (lambda w: w.add_uint32("llama.rope.dimension_count", 8), "dimension_count is 8 and heads have 32"),
    "vocabulary": (lambda w: w.add_string("tokenizer.ggml.model", "bert"), "tokenizer of the kind 'bert'"),
    "tokens": (lambda w: w.add_array("tokenizer.ggml.tokens", [1, 2]), r"ggml\.tokens is \[1, 2\]; it is a list of te"),
    "types": (lambda w: w.add_array("tokenizer.ggml.token_type", [1]), r"token_type is \[1\]; it is a number for each"),
    "end": (lambda w: w.add_uint32("tokenizer.ggml.eos_token_id", 999), "eos_token_id is 999, and there are 261"),
    "merges": (lambda w: w.add_array("tokenizer.ggml.merges", ["ab"]), "merge 'ab' is not two parts"),
    "tensor": (lambda w: w.add_tensor("blk.0.odd.weight", torch.ones(32).numpy()), r"'blk\.0\.odd\.weight' that a ll"),
}


@pytest.mark.filterwarnings("ignore:Duplicated key name")
@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_read_is_refused_with_what_it_is(tmp_path, case, capsys):
    add, message = REFUSED[case]

    def replace(writer: gguf.GGUFWriter) -> None:
        before = {key: value for group in writer.kv_data for key, value in group.items()}
        for group in writer.kv_data:
            group.clear()
        add(writer)
        own = {key for group in writer.kv_data for key in group}
        writer.kv_data[0].update({key: value for key, value in before.items() if key not in own})

    path = write_gguf(tmp_path / "m.gguf", small_folder(tmp_path / "model"), more=replace)
    with pytest.raises(UserError, match=message):
        load(path)


def test_missing_settings_and_tensors_are_named(tmp_path):
    folder = small_folder(tmp_path / "model")
    with pytest.raises(UserError, match=r"does not give llama\.feed_forward_length"):
        load(write_gguf(tmp_path / "a.gguf", folder, without=("feed_forward_length",)))
    with pytest.raises(UserError, match=r"tensor 'model\.layers\.0\.mlp\.up_proj\.weight' is \[96, 32\], but"):
        load(
            write_gguf(
                tmp_path / "b.gguf", folder, change=lambda name, t: t[:, :32].clone() if "0.mlp.up_proj" in name else t
            )
        )


def test_values_that_are_not_finite_are_refused(tmp_path):
    def spoil(name, tensor):
        tensor = tensor.clone()
        if name == "model.layers.1.mlp.up_proj.weight":
            tensor[3, 5] = float("nan")
        return tensor

    path = write_gguf(tmp_path / "m.gguf", small_folder(tmp_path / "model"), change=spoil)
    with pytest.raises(UserError, match=r"tensor 'blk\.1\.ffn_up\.weight' \(F32\) holds values that are not finite"):
        load(path)
