"""Tiny COMET models in the published layout, and a second writing of what they compute."""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from posttrain.models import Model
from posttrain.policies.comet import CometPolicy
from posttrain.policies.loading import load_policy

SOURCE, GOOD, OTHER = "ba de gi", "the dog sees", "a cat"
WORDS = ["<s>", "<pad>", "</s>", "<unk>", *f"{SOURCE} {GOOD} {OTHER}".split()]
WIDTH, LAYERS, HIDDEN, PLACES = 8, 2, 5, 18
FEATURES = {"regression_metric": 6, "referenceless_regression_metric": 4, "unified_metric": 1}


def made(folder: Path, metric: str = "referenceless_regression_metric", **settings: Any) -> Path:
    """A tiny model as PyTorch Lightning saves it, with its encoder beside it."""
    transformers = pytest.importorskip("transformers")
    from tokenizers import Tokenizer, models, pre_tokenizers

    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    named = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **named).save_pretrained(folder / "encoder")
    config = transformers.XLMRobertaConfig(
        vocab_size=len(WORDS),
        hidden_size=WIDTH,
        num_hidden_layers=LAYERS,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=PLACES,
    )
    config.save_pretrained(folder / "encoder")
    torch.manual_seed(0)
    encoder = transformers.XLMRobertaModel(config)  # with the pooling layer that released checkpoints have
    sizes = (FEATURES[metric] * WIDTH, HIDDEN, 1)
    state = {f"encoder.model.{name}": own for name, own in encoder.state_dict().items()}
    for place, (before, after) in enumerate(pairwise(sizes)):
        state[f"estimator.ff.{3 * place}.weight"] = torch.randn(after, before) / 3
        state[f"estimator.ff.{3 * place}.bias"] = torch.randn(after) / 3
    for layer in range(LAYERS + 1):
        state[f"layerwise_attention.scalar_parameters.{layer}"] = torch.tensor([0.5 * layer])
    state["layerwise_attention.gamma"] = torch.tensor([1.5])
    given = {"class_identifier": metric, "hidden_sizes": [HIDDEN], "activations": "Tanh", "pool": "avg", **settings}
    (folder / "hparams.yaml").write_text(json.dumps(given))
    lightning = {"epoch": 3, "global_step": 70, "pytorch-lightning_version": "1.9.5", "hyper_parameters": given}
    lightning |= {"state_dict": state, "callbacks": {"EarlyStopping{'monitor': 'val'}": {"best_score": torch.ones(())}}}
    (folder / "checkpoints").mkdir()
    torch.save(lightning, folder / "checkpoints" / "model.ckpt")
    return folder


def tensors(folder: Path) -> dict[str, Any]:
    """What the checkpoint holds."""
    stored: dict[str, Any] = torch.load(folder / "checkpoints" / "model.ckpt", weights_only=True)["state_dict"]
    return stored


def opened(folder: Path, **settings: Any) -> CometPolicy:
    """The model in a role."""
    policy = load_policy("comet", Model(source=str(folder), **settings), {}, torch.device("cpu"))
    assert isinstance(policy, CometPolicy)
    return policy


def ids(text: str) -> list[int]:
    return [0, *(WORDS.index(word) for word in text.split()), 2]


class Second:
    """A second writing in float64: the encoder is that of transformers, all else is numpy."""

    def __init__(self, folder: Path, *, sparse: bool = False) -> None:
        import transformers

        self.encoder = transformers.XLMRobertaModel(transformers.XLMRobertaConfig.from_pretrained(folder / "encoder"))
        stored = tensors(folder)
        prefix = "encoder.model."
        self.encoder.load_state_dict({k.removeprefix(prefix): v for k, v in stored.items() if k.startswith(prefix)})
        self.encoder.eval().double()
        self.stored = {name: own.double().numpy() for name, own in stored.items()}
        raised = np.exp(
            [float(self.stored[f"layerwise_attention.scalar_parameters.{i}"][0]) for i in range(LAYERS + 1)]
        )
        self.weights = np.array([0.0, 0.25, 0.75]) if sparse else raised / raised.sum()

    def states(self, read: list[int]) -> Any:
        """[L, D] mixed states."""
        with torch.no_grad():
            found = self.encoder(input_ids=torch.tensor([read]), output_hidden_states=True).hidden_states
        layers = [own[0].numpy() for own in found]
        layers = [(own - own.mean()) / np.sqrt(((own - own.mean()) ** 2).mean() + 1e-12) for own in layers]
        return 1.5 * sum(w * own for w, own in zip(self.weights, layers, strict=True))

    def head(self, features: Any) -> float:
        weights, biases = ([self.stored[f"estimator.ff.{i}.{kind}"] for i in (0, 3)] for kind in ("weight", "bias"))
        hidden = np.tanh(weights[0] @ features + biases[0])
        return float((weights[1] @ hidden + biases[1])[0])
