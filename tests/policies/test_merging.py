"""Merging: every parameter, once, in float64; adapters first; and what cannot be merged."""

import json
from pathlib import Path

import pytest
import torch

from posttrain.components.merges.soup import Soup
from posttrain.errors import UserError
from posttrain.models import LoRA, Model
from posttrain.policies import _byte_tokenizer
from posttrain.policies.folder import new_folder
from posttrain.policies.language_model import LanguageModelPolicy
from posttrain.policies.lora import adapters
from posttrain.policies.merging import merge
from tests.policies.made_models import load, make_folder, packed_logits, random_sequences

MADE = Model(source="made")


def tiny(path: Path, **changes: int | bool) -> LanguageModelPolicy:
    sizes: dict[str, int | bool] = {"layers": 1, "width": 32, "heads": 2, "kv_heads": 1, "context": 64} | changes
    return load(new_folder(path, **sizes))  # type: ignore[arg-type]


@pytest.mark.parametrize("tied", [True, False])
def test_every_parameter_is_the_average(tmp_path: Path, tied: bool) -> None:
    a, b = (tiny(tmp_path / str(seed), seed=seed, tied=tied) for seed in (1, 2))
    made = merge("reference", MADE, {"a": a, "b": b}, Soup(weights=(0.25, 0.75)))
    others = dict(b.named_parameters())
    own = dict(made.policy.named_parameters())
    assert own.keys() == others.keys() == dict(a.named_parameters()).keys()
    for name, parameter in a.named_parameters():
        expected = (0.25 * parameter.double() + 0.75 * others[name].double()).float()
        assert torch.equal(own[name], expected) and not own[name].requires_grad
    assert made.policy.role == "reference"
    squares = [(0.75 * (p - others[n]).double()).square().sum() for n, p in a.named_parameters()]
    norm = sum(p.double().square().sum() for p in a.parameters())
    assert made.distances["a"] == pytest.approx(float((sum(squares) / norm) ** 0.5), rel=1e-5)
    assert made.distances["b"] < made.distances["a"]


def test_a_tied_matrix_stays_tied(tmp_path: Path) -> None:
    a, b = (tiny(tmp_path / str(seed), seed=seed, tied=True) for seed in (1, 2))
    merge("reference", MADE, {"a": a, "b": b}, Soup()).policy.save(tmp_path / "out")
    read = load(tmp_path / "out")
    ids = random_sequences(9)
    mean = (a.body.get_parameter("model.embed_tokens.weight") + b.body.get_parameter("model.embed_tokens.weight")) / 2
    assert torch.allclose(read.body.get_parameter("model.embed_tokens.weight"), mean)
    assert packed_logits(read.body, ids).isfinite().all()


def test_sources_are_left_as_they_are(tmp_path: Path) -> None:
    a, b = (tiny(tmp_path / str(seed), seed=seed) for seed in (1, 2))
    before = [p.clone() for p in (*a.parameters(), *b.parameters())]
    merge("reference", MADE, {"a": a, "b": b}, Soup())
    assert all(torch.equal(p, old) for p, old in zip((*a.parameters(), *b.parameters()), before, strict=True))


def test_adapters_are_merged_before_they_are_averaged(tmp_path: Path) -> None:
    """The mean of B_i A_i, which the product of mean B and mean A is not."""
    folder = new_folder(tmp_path / "base", layers=1, width=32, heads=2, kv_heads=1, context=64)
    a, b = (load(folder, trained=True, lora=LoRA(rank=2, targets=("q_proj",))) for _ in range(2))
    for seed, policy in enumerate((a, b)):
        generator = torch.Generator().manual_seed(seed)
        for layer in adapters(policy).values():
            torch.nn.init.normal_(layer.lora_A, generator=generator)
            torch.nn.init.normal_(layer.lora_B, generator=generator)
    made = merge("reference", MADE, {"a": a, "b": b}, Soup()).policy
    assert not adapters(made)
    [(name, first)], [second] = adapters(a.body).items(), adapters(b.body).values()
    expected = (first.merged().double() + second.merged().double()) / 2
    assert torch.equal(made.body.get_parameter(f"{name}.weight"), expected.float())


def test_the_sum_is_rounded_once(tmp_path: Path) -> None:
    """In bfloat16, 1/3 of each of three models would lose digits three times."""
    models = {str(seed): tiny(tmp_path / str(seed), seed=seed) for seed in range(3)}
    for policy in models.values():
        policy.body.to(torch.bfloat16)
    made = merge("reference", Model(source="made", dtype="bfloat16"), models, Soup()).policy
    exact = sum(p.body.get_parameter("model.embed_tokens.weight").double() for p in models.values()) / 3  # type: ignore[union-attr]
    assert torch.equal(made.body.get_parameter("model.embed_tokens.weight"), exact.to(torch.bfloat16))


def test_buffers_are_those_of_the_first(tmp_path: Path) -> None:
    a, b = (tiny(tmp_path / str(seed), seed=seed) for seed in (1, 2))
    for value, policy in ((3, a), (8, b)):
        policy.body.register_buffer("count", torch.tensor([value]))
    assert merge("reference", MADE, {"a": a, "b": b}, Soup()).policy.body.get_buffer("count").tolist() == [3]


def test_models_of_transformers_merge_too(tmp_path: Path) -> None:
    sizes = {"n_positions": 64, "n_embd": 32, "n_layer": 1, "n_head": 2, "vocab_size": _byte_tokenizer.VOCABULARY_SIZE}
    a = load(make_folder(tmp_path / "gpt2", "GPT2Config", sizes))
    b = load(tmp_path / "gpt2")
    with torch.no_grad():
        for parameter in b.parameters():
            parameter.add_(1.0)
    made = merge("reference", MADE, {"a": a, "b": b}, Soup()).policy
    others = dict(made.named_parameters())
    assert all(torch.allclose(others[name], p + 0.5, atol=1e-6) for name, p in a.named_parameters())


def test_what_differs_is_reported(tmp_path: Path) -> None:
    a, wide = tiny(tmp_path / "a"), tiny(tmp_path / "wide", mlp_width=80)
    with pytest.raises(UserError, match=r"a and b cannot be merged: 'mlp_width' of their architectures is 96 and"):
        merge("reference", MADE, {"a": a, "b": wide}, Soup())
    config = json.loads(a.origin.config)
    theta = tiny(tmp_path / "theta")
    theta.origin = theta.origin.__class__(
        **{**vars(theta.origin), "config": json.dumps(config | {"rope_theta": 5e5}).encode()}
    )
    with pytest.raises(UserError, match=r"'rope_theta' of their architectures is 10000.0 and 500000.0"):
        merge("reference", MADE, {"a": a, "b": theta}, Soup())
    with pytest.raises(UserError, match="a merged model has all its weights, not adapters"):
        merge("x", Model(source="made", trained=True, lora=LoRA()), {"a": a, "b": tiny(tmp_path / "b")}, Soup())
    with pytest.raises(UserError, match=r"models.x.head is value, but a has a language head"):
        merge("x", Model(source="made", head="value"), {"a": a, "b": tiny(tmp_path / "c")}, Soup())


def test_other_tokens_are_refused(tmp_path: Path) -> None:
    a, b = tiny(tmp_path / "a"), tiny(tmp_path / "b", seed=1)
    path = tmp_path / "b" / "tokenizer.json"
    tokenizer = json.loads(path.read_text())
    vocabulary = tokenizer["model"]["vocab"]
    first, second = list(vocabulary)[:2]
    vocabulary[first], vocabulary[second] = vocabulary[second], vocabulary[first]
    path.write_text(json.dumps(tokenizer))
    with pytest.raises(UserError, match=r"2 tokens of their tokenizers differ"):
        merge("reference", MADE, {"a": a, "b": load(tmp_path / "b")}, Soup())
    assert b.tokenizer.vocabulary == a.tokenizer.vocabulary
