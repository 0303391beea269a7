import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from posttrain.errors import UserError
from posttrain.policies import folder as folders
from posttrain.policies.folder import bundled, bundled_names, new_folder, open_folder
from posttrain.policies.tokenizer import Tokenizer
from tests.policies.made_models import (
    DECODERS,
    load,
    make_folder,
    pack,
    packed_logits,
    random_sequences,
    transformers_logits,
)

WEIGHTS = "model.safetensors"


def bits(path: Path) -> dict[str, tuple[torch.dtype, bytes]]:
    """Type and bits of every tensor in a file."""
    return {name: (t.dtype, t.contiguous().view(torch.uint8).numpy().tobytes()) for name, t in load_file(path).items()}


@pytest.fixture
def made(tmp_path: Path) -> Path:
    return new_folder(tmp_path / "made")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", ["qwen3 biases", "qwen2 tied", "llama"])
def test_loading_and_saving_changes_no_bit(name: str, dtype: torch.dtype, tmp_path: Path) -> None:
    source = make_folder(tmp_path / "source", *DECODERS[name], dtype=dtype)
    (source / "chat_template.jinja").write_text("{{ messages }}")
    load(source).save(tmp_path / "saved")
    assert bits(tmp_path / "saved" / WEIGHTS) == bits(source / WEIGHTS)
    for file in source.iterdir():
        if file.name != WEIGHTS:
            assert (tmp_path / "saved" / file.name).read_bytes() == file.read_bytes()
    with safe_open(tmp_path / "saved" / WEIGHTS, framework="pt") as saved:
        assert saved.metadata() == {"format": "pt"}
    assert (tmp_path / "saved" / WEIGHTS).stat().st_mode == (tmp_path / "saved" / "config.json").stat().st_mode


def test_mixed_stored_types_are_kept(made: Path, tmp_path: Path) -> None:
    tensors = {name: t.bfloat16() if t.dim() > 1 else t for name, t in load_file(made / WEIGHTS).items()}
    save_file(tensors, made / WEIGHTS)
    load(made).save(tmp_path / "saved")
    assert bits(tmp_path / "saved" / WEIGHTS) == bits(made / WEIGHTS)


def test_trained_weights_are_saved_in_the_training_type(tmp_path: Path) -> None:
    """float32 weights that no longer fit bfloat16 are written as float32, and the config states it."""
    source = make_folder(tmp_path / "source", *DECODERS["qwen3"], dtype=torch.bfloat16)
    policy = load(source, trained=True)
    with torch.no_grad():
        for parameter in policy.parameters():
            parameter.mul_(1.0001)
    policy.save(tmp_path / "saved")
    assert {dtype for dtype, _ in bits(tmp_path / "saved" / WEIGHTS).values()} == {torch.float32}
    before, after = (json.loads((p / "config.json").read_text()) for p in (source, tmp_path / "saved"))
    assert (before.pop("dtype"), after.pop("dtype")) == ("bfloat16", "float32")
    assert before == after


@pytest.mark.parametrize("name", ["qwen3", "qwen2 tied", "llama biases"])
def test_what_was_trained_and_saved_is_the_same_model_in_transformers(name: str, tmp_path: Path) -> None:
    policy = load(make_folder(tmp_path / "source", *DECODERS[name]), trained=True)
    sequences = random_sequences(7, 50)
    before = packed_logits(policy.body, sequences)
    optimizer = torch.optim.SGD(policy.parameters(), lr=0.01)
    policy.body.hidden(pack(sequences)).square().sum().backward()
    optimizer.step()
    after = packed_logits(policy.body, sequences)
    assert (after - before).abs().max() > 0.01
    policy.save(tmp_path / "saved")
    torch.testing.assert_close(transformers_logits(tmp_path / "saved", sequences), after, atol=1e-5, rtol=0)
    assert torch.equal(packed_logits(load(tmp_path / "saved").body, sequences), after)


def test_shards_are_read(made: Path, tmp_path: Path) -> None:
    tensors = load_file(made / WEIGHTS)
    names = sorted(tensors)
    shards = {"a.safetensors": names[::2], "b.safetensors": names[1::2]}
    for file, part in shards.items():
        save_file({name: tensors[name] for name in part}, made / file)
    (made / WEIGHTS).unlink()
    index = {"weight_map": {name: file for file, part in shards.items() for name in part}}
    (made / "model.safetensors.index.json").write_text(json.dumps(index))
    policy = load(made)
    assert all(torch.equal(tensor, tensors[name]) for name, tensor in policy.body.state_dict().items())
    policy.save(tmp_path / "saved")
    assert load_file(tmp_path / "saved" / WEIGHTS).keys() == tensors.keys()
    (made / "b.safetensors").unlink()
    with pytest.raises(UserError, match=r"b\.safetensors' is missing, though the index names it"):
        load(made)
    save_file({"other": tensors[names[0]]}, made / "b.safetensors")
    with pytest.raises(UserError, match=r"b\.safetensors' lacks the tensor"):
        load(made)


def test_a_copy_of_the_tied_embedding_and_old_buffers_are_no_obstacle(made: Path, tmp_path: Path) -> None:
    tensors = load_file(made / WEIGHTS)
    tensors["lm_head.weight"] = tensors["model.embed_tokens.weight"].clone()
    save_file(tensors | {"model.layers.0.self_attn.rotary_emb.inv_freq": torch.ones(8)}, made / WEIGHTS)
    load(made).save(tmp_path / "saved")
    saved = load_file(tmp_path / "saved" / WEIGHTS)
    assert saved.keys() == tensors.keys()
    assert all(torch.equal(saved[name], tensor) for name, tensor in tensors.items())


@pytest.mark.parametrize("architecture", ["qwen3", "llama"])
@pytest.mark.parametrize("tied", [True, False])
def test_a_new_model_is_an_ordinary_folder(architecture: Any, tied: bool, tmp_path: Path) -> None:
    sizes: Any = {"architecture": architecture, "tied": tied, "heads": 4, "kv_heads": 2, "head_dim": 24}
    path = new_folder(tmp_path / "a", **sizes, seed=3)
    policy, sequences = load(path), random_sequences(30, 4)
    logits = packed_logits(policy.body, sequences)
    torch.testing.assert_close(transformers_logits(path, sequences), logits, atol=1e-5, rtol=0)
    assert policy.tokenizer.end_token_ids == {257}
    assert bits(new_folder(tmp_path / "b", **sizes, seed=3) / WEIGHTS) == bits(path / WEIGHTS)
    assert bits(new_folder(tmp_path / "c", **sizes, seed=4) / WEIGHTS) != bits(path / WEIGHTS)


def _change_tensors(change: Callable[[dict[str, Tensor]], Any]) -> Callable[[Path], None]:
    def apply(path: Path) -> None:
        tensors = load_file(path / WEIGHTS)
        change(tensors)
        save_file(tensors, path / WEIGHTS)

    return apply


def _pickled(path: Path) -> None:
    (path / WEIGHTS).rename(path / "pytorch_model.bin")


def _truncated(path: Path) -> None:
    (path / WEIGHTS).write_bytes((path / WEIGHTS).read_bytes()[:-100])


EMBEDDING, NORM = "model.embed_tokens.weight", "model.layers.1.input_layernorm.weight"


def _small_vocabulary(path: Path) -> None:
    config = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps(config | {"vocab_size": 200}))
    _change_tensors(lambda t: t.update({"model.embed_tokens.weight": t["model.embed_tokens.weight"][:200].clone()}))(
        path
    )


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda path: shutil.rmtree(path), r"the model folder '.*made' does not exist; .*did you mean '.*made2'"),
        (lambda path: (path / "config.json").unlink(), r"has no config\.json.*it holds: generation_config\.json"),
        (lambda path: (path / WEIGHTS).unlink(), r"has no weights \(model\.safetensors"),
        (_pickled, r"pytorch_model\.bin, a pickle: loading one runs whatever code is in it"),
        (_truncated, r"damaged or cut short. Copy or download it again"),
        (lambda path: (path / "config.json").write_text("{"), r"config\.json' is not readable JSON"),
        (lambda path: (path / "tokenizer.json").unlink(), r"has no tokenizer\.json"),
        (_change_tensors(lambda t: t.pop(NORM)), rf"lacks the tensor '{NORM}' that its config"),
        (_change_tensors(lambda t: [t.pop(n) for n in list(t) if "norm" in n]), r"lacks the tensor '.*' and 8 more"),
        (_change_tensors(lambda t: t.update(odd=torch.ones(2))), "holds a tensor 'odd' that its config"),
        (_change_tensors(lambda t: t.update({NORM: torch.ones(3)})), rf"tensor '{NORM}' is \[3\], but .* \[64\]"),
        (_small_vocabulary, "tokenizer of '.*' has 261 tokens, but the model has only 200"),
    ],
)
def test_what_is_wrong_with_a_folder_is_reported(damage: Callable[[Path], Any], message: str, made: Path) -> None:
    new_folder(made.with_name("made2"), width=16, heads=1)
    damage(made)
    with pytest.raises(UserError, match=rf"models\.policy: .*{message}"):
        load(made)


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_weights_that_are_not_finite_are_refused(value: float, made: Path) -> None:
    name = "model.layers.1.mlp.up_proj.weight"
    tensors = load_file(made / WEIGHTS)
    tensors[name].view(-1)[7] = value
    save_file(tensors, made / WEIGHTS)
    with pytest.raises(UserError, match=rf"made': tensor '{name}' holds 1 of 12,288 values that are not finite"):
        load(made)


def test_a_path_that_leads_nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folders, "BUNDLED", tmp_path)
    with pytest.raises(
        UserError, match=r"'Qwen' does not exist either.*a model of the Hugging Face hub is named owner/name"
    ):
        open_folder(Path("Qwen/Qwen3-0.6B"))
    with pytest.raises(UserError, match=f"'{tmp_path}/mine' does not exist; there are no model folders in {tmp_path}"):
        open_folder(tmp_path / "mine")
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="is a file, not a folder"):
        open_folder(tmp_path / "file")


def test_bundled_models_are_found_by_name(made: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(folders, "BUNDLED", made.parent)
    assert bundled_names() == ["made"]
    assert bundled("made") == made
    assert Tokenizer.load(bundled("made")).size == 261
    with pytest.raises(UserError, match="no bundled model 'mad'; did you mean 'made'"):
        bundled("mad")


def test_context_is_at_most_the_models(made: Path) -> None:
    assert load(made).body.context == 512
    assert load(made, context=64).body.context == 64
    with pytest.raises(UserError, match="context is 513 tokens, but the model is made for 512"):
        load(made, context=513)
