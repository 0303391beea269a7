"""COMET models from a folder: each class against its formula, copies, and what names a missing part."""

import json
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from posttrain.components.rewards.comet import Comet
from posttrain.components.rewards.translated import Translated
from posttrain.errors import UserError
from posttrain.grading._comet_folder import CometModel, sparsemax
from posttrain.types import Task
from tests.components.rewards.judging import attempt, judge, score_all

SOURCE, GOOD, OTHER = "ba de gi", "the dog sees", "a cat"
WIDTH, LAYERS, HIDDEN = 8, 2, 5
FEATURES = {"regression_metric": 6, "referenceless_regression_metric": 4, "unified_metric": 1}
ITEM = Task(key="k", prompt="p", answer=GOOD, fields={"source": SOURCE})


def made(folder: Path, metric: str = "referenceless_regression_metric", **settings: Any) -> Path:
    """A tiny model in the published layout, with its encoder beside it."""
    transformers = pytest.importorskip("transformers")
    from tokenizers import Tokenizer, models, pre_tokenizers

    words = ["<s>", "<pad>", "</s>", "<unk>", *f"{SOURCE} {GOOD} {OTHER}".split()]
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    named = {"bos_token": "<s>", "eos_token": "</s>", "pad_token": "<pad>", "unk_token": "<unk>"}
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **named).save_pretrained(folder / "encoder")
    config = transformers.XLMRobertaConfig(
        vocab_size=len(words),
        hidden_size=WIDTH,
        num_hidden_layers=LAYERS,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=16,
    )
    config.save_pretrained(folder / "encoder")
    torch.manual_seed(0)
    encoder = transformers.XLMRobertaModel(config, add_pooling_layer=False)
    sizes = (FEATURES[metric] * WIDTH, HIDDEN, 1)
    state = {f"encoder.model.{name}": own for name, own in encoder.state_dict().items()}
    for place, (before, after) in enumerate(pairwise(sizes)):
        state[f"estimator.ff.{3 * place}.weight"] = torch.randn(after, before) / 3
        state[f"estimator.ff.{3 * place}.bias"] = torch.randn(after) / 3
    for layer in range(LAYERS + 1):
        state[f"layerwise_attention.scalar_parameters.{layer}"] = torch.tensor([0.5 * layer])
    state["layerwise_attention.gamma"] = torch.tensor([1.5])
    save_file({name: own.contiguous() for name, own in state.items()}, folder / "model.safetensors")
    given = {"class_identifier": metric, "hidden_sizes": [HIDDEN], "activations": "Tanh", "pool": "avg", **settings}
    (folder / "hparams.yaml").write_text(json.dumps(given))
    return folder


def states(model: CometModel, ids: list[int], *, sparse: bool = False) -> np.ndarray:
    """[L, D] mixed states, by the formula."""
    with torch.no_grad():
        found = model.encoder(input_ids=torch.tensor([ids]), output_hidden_states=True).hidden_states
    layers = [own[0].double().numpy() for own in found]
    layers = [(own - own.mean()) / np.sqrt(((own - own.mean()) ** 2).mean() + 1e-12) for own in layers]
    raised = np.exp(0.5 * np.arange(LAYERS + 1))
    weights = np.array([0.0, 0.25, 0.75]) if sparse else raised / raised.sum()
    return np.asarray(1.5 * sum(w * own for w, own in zip(weights, layers, strict=True)))


def head(model: CometModel, features: np.ndarray) -> float:
    first, last = (model.estimator[i] for i in (0, 3))
    hidden = np.tanh(first.weight.detach().double().numpy() @ features + first.bias.detach().double().numpy())
    return float((last.weight.detach().double().numpy() @ hidden + last.bias.detach().double().numpy())[0])


def ids(model: CometModel, text: str) -> list[int]:
    return [0, *model.tokenizer(text, add_special_tokens=False)["input_ids"], 2]


@pytest.mark.parametrize("sparse", [False, True])
def test_without_a_reference(sparse: bool, tmp_path: Path) -> None:
    model = CometModel(made(tmp_path, layer_transformation="sparsemax" if sparse else "softmax"))
    mt, src = (states(model, ids(model, text), sparse=sparse).mean(0) for text in (GOOD, SOURCE))
    wanted = head(model, np.concatenate([mt, src, mt * src, abs(mt - src)]))
    assert model.score(SOURCE, GOOD) == pytest.approx(wanted, abs=1e-5) and not model.needs_reference


def test_with_a_reference(tmp_path: Path) -> None:
    model = CometModel(made(tmp_path, "regression_metric", pool="cls"))
    mt, src, ref = (states(model, ids(model, text))[0] for text in (OTHER, SOURCE, GOOD))
    wanted = head(model, np.concatenate([mt, ref, mt * ref, abs(mt - ref), mt * src, abs(mt - src)]))
    assert model.score(SOURCE, OTHER, GOOD) == pytest.approx(wanted, abs=1e-5) and model.needs_reference


def test_several_texts_as_one(tmp_path: Path) -> None:
    model = CometModel(made(tmp_path, "unified_metric", input_segments=["mt", "src", "ref"]))

    def of(*texts: str) -> float:
        joined = ids(model, texts[0])
        for text in texts[1:]:
            joined += [2, *ids(model, text)[1:]]
        return head(model, states(model, joined)[0])

    mixed = 0.1667 * of(OTHER, SOURCE) + 0.3333 * of(OTHER, GOOD) + 0.5 * of(OTHER, SOURCE, GOOD)
    assert model.score(SOURCE, OTHER, GOOD) == pytest.approx(mixed, abs=1e-5)
    assert model.score(SOURCE, OTHER) == pytest.approx(of(OTHER, SOURCE), abs=1e-5)


def test_the_nearest_probabilities() -> None:
    assert sparsemax(torch.tensor([0.0, 0.5, 1.0])).tolist() == pytest.approx([0.0, 0.25, 0.75])
    assert sparsemax(torch.zeros(4)).tolist() == [0.25] * 4


def test_a_reward_of_translations(tmp_path: Path) -> None:
    pytest.importorskip("sacrebleu")
    reward = Comet(folder=str(made(tmp_path, final_activation="Sigmoid")))
    values = [judge(reward, text, ITEM).value for text in (GOOD, OTHER, SOURCE, "")]
    assert 0.0 < values[0] < 1.0 and values[0] != values[1] and values[2:] == [0.0, 0.0]
    together = score_all(reward, *(attempt(text, ITEM) for text in (OTHER, GOOD, OTHER)))
    assert [score.value for score in together] == [values[1], values[0], values[1]]
    assert judge(reward, f"</s> {GOOD} " * 4000, ITEM).status == "wrong"
    mixed = judge(Translated(measure="mix", semantic=reward), f"<think>x</think><translate>{GOOD}</translate>", ITEM)
    assert mixed.parts["meaning"].value == values[0]
    assert judge(reward, GOOD, Task(key="k", prompt="", answer=GOOD)).status == "error"


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="needs hparams"):
        Comet(folder=str(tmp_path / "none")).prepare()
    folder = made(tmp_path)
    file = folder / "model.safetensors"
    whole = load_file(file)
    save_file({**whole, "estimator.ff.0.weight": torch.zeros(2, 2)}, file)
    with pytest.raises(UserError, match=r"'estimator.ff.0.weight' has the shape \[2, 2\]"):
        CometModel(folder)
    save_file({name: own for name, own in whole.items() if name != "estimator.ff.3.bias"}, file)
    with pytest.raises(UserError, match="no tensor 'estimator"):
        CometModel(folder)
    file.write_bytes(b"nothing")
    with pytest.raises(UserError, match="holds no tensors"):
        CometModel(folder)
    file.unlink()
    with pytest.raises(UserError, match="the weights are missing"):
        CometModel(folder)
    (folder / "checkpoints").mkdir()
    torch.save({"state_dict": whole, "epoch": 3}, folder / "checkpoints" / "model.ckpt")
    with pytest.raises(UserError, match=r"can hold code") as caught:
        CometModel(folder)
    command = str(caught.value).partition("&& ")[2].replace("python", sys.executable, 1)
    subprocess.run(command, shell=True, check=True, cwd=folder)
    assert CometModel(folder).metric == "referenceless_regression_metric"
    (folder / "encoder" / "tokenizer.json").unlink()
    with pytest.raises(UserError, match="has no tokenizer"):
        CometModel(folder)
    (folder / "hparams.yaml").write_text('{"class_identifier": "ranking_metric"}')
    with pytest.raises(UserError, match="class_identifier is 'ranking_metric'"):
        CometModel(folder)
