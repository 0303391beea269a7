"""COMET models as roles: each class against a second writing, batches, the released checkpoint, and what is refused."""

import asyncio
import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from posttrain.engines.native import Native
from posttrain.errors import UserError
from posttrain.models import Model
from posttrain.policies.comet import CometPolicy, sparsemax
from posttrain.policies.sizes import size_of
from posttrain.runs.changes import digest_of_model
from tests.policies.comets import GOOD, LAYERS, OTHER, PLACES, SOURCE, Second, ids, made, opened, tensors

TRIPLES = [(GOOD, SOURCE), (OTHER, SOURCE, GOOD), (GOOD, SOURCE, GOOD), (OTHER, SOURCE)]


def outputs(policy: CometPolicy, *texts: tuple[str, ...]) -> list[list[float]]:
    """Scores and shares, requested at the same time."""

    async def requested() -> list[Any]:
        sampler = Native().serve(policy, 0).bind("scores")
        every = [np.concatenate([sampler.encode(text) for text in one]) for one in texts]
        return list(await asyncio.gather(*(sampler.scores(one) for one in every)))

    return [[float(number) for number in one] for one in asyncio.run(requested())]


def value(policy: CometPolicy, *texts: str) -> float:
    return outputs(policy, texts)[0][0]


@pytest.mark.parametrize("sparse", [False, True])
def test_without_a_reference(sparse: bool, tmp_path: Path) -> None:
    folder = made(tmp_path, layer_transformation="sparsemax" if sparse else "softmax")
    second = Second(folder, sparse=sparse)
    mt, src = (second.states(ids(text)).mean(0) for text in (GOOD, SOURCE))
    wanted = second.head(np.concatenate([mt, src, mt * src, abs(mt - src)]))
    assert value(opened(folder), GOOD, SOURCE) == pytest.approx(wanted, abs=1e-5)
    assert value(opened(folder), GOOD, SOURCE, OTHER) == pytest.approx(wanted, abs=1e-5)


@pytest.mark.parametrize("pool", ["cls", "avg", "max"])
def test_with_a_reference(pool: str, tmp_path: Path) -> None:
    folder = made(tmp_path, "regression_metric", pool=pool)
    second = Second(folder)
    pooled = {
        "cls": lambda states: states[0],
        "avg": lambda states: states.mean(0),
        "max": lambda states: states.max(0),
    }
    mt, src, ref = (pooled[pool](second.states(ids(text))) for text in (OTHER, SOURCE, GOOD))
    wanted = second.head(np.concatenate([mt, ref, mt * ref, abs(mt - ref), mt * src, abs(mt - src)]))
    assert value(opened(folder), OTHER, SOURCE, GOOD) == pytest.approx(wanted, abs=1e-5)
    assert np.isnan(value(opened(folder), OTHER, SOURCE))


def test_several_texts_as_one(tmp_path: Path) -> None:
    folder = made(tmp_path, "unified_metric", input_segments=["mt", "src", "ref"])
    second, policy = Second(folder), opened(folder)

    def of(*texts: str) -> float:
        joined = ids(texts[0])
        for text in texts[1:]:
            joined += [2, *ids(text)[1:]]
        return second.head(second.states(joined)[0])

    mixed = 0.1667 * of(OTHER, SOURCE) + 0.3333 * of(OTHER, GOOD) + 0.5 * of(OTHER, SOURCE, GOOD)
    assert value(policy, OTHER, SOURCE, GOOD) == pytest.approx(mixed, abs=1e-5)
    assert value(policy, OTHER, SOURCE) == pytest.approx(of(OTHER, SOURCE), abs=1e-5)


@pytest.mark.parametrize("metric", ["referenceless_regression_metric", "unified_metric"])
def test_a_score_does_not_depend_on_what_is_scored_beside_it(metric: str, tmp_path: Path) -> None:
    policy = opened(made(tmp_path, metric))
    passes = []
    policy.body.encoder.register_forward_hook(lambda *_: passes.append(1))
    together = outputs(policy, *TRIPLES)
    seen = len(passes)
    assert [outputs(policy, one)[0] for one in TRIPLES] == together
    if metric != "unified_metric":
        assert seen == 3, "each text is read once in a pass"


def test_the_share_that_is_read(tmp_path: Path) -> None:
    policy = opened(made(tmp_path))
    long = " ".join([OTHER] * 20)
    [(whole, one), (short, share), (cut, same)] = outputs(
        policy, (OTHER, SOURCE), (long, SOURCE), (" ".join([OTHER] * 7), SOURCE)
    )
    assert (one, same) == (1.0, 1.0) and share == pytest.approx((PLACES - 2 + 5) / (42 + 5))
    assert short == cut != whole, "the first tokens, between the tokens that begin and end a text"


@pytest.mark.slow
def test_a_copy_in_another_process(tmp_path: Path) -> None:
    folder = made(tmp_path)
    policy = opened(folder)
    wanted = value(policy, GOOD, SOURCE)  # which makes transformers install what records hidden states
    (tmp_path / "policy").write_bytes(pickle.dumps(policy))
    code = """
import pickle, sys
import torch
from posttrain.policies import Packed
from posttrain.signals import SCORE
policy = pickle.loads(open(sys.argv[1], 'rb').read())
ids = [int(i) for i in sys.argv[2].split(',')]
packed = Packed(token_ids_L=torch.tensor(ids), starts=(0, len(ids)))
print(float(policy.evaluate(packed, torch.tensor([len(ids) - 1]))[SCORE]))
"""
    given = ",".join(map(str, [*ids(GOOD), *ids(SOURCE)]))
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "policy"), given], capture_output=True, text=True, check=True
    )
    assert float(done.stdout) == wanted


def test_a_safetensors_file_goes_first(tmp_path: Path) -> None:
    folder = made(tmp_path)
    before = value(opened(folder), GOOD, SOURCE)
    own = {name: tensor.clone().contiguous() for name, tensor in tensors(folder).items()}
    save_file(own | {"estimator.ff.3.bias": own["estimator.ff.3.bias"] + 1.0}, folder / "model.safetensors")
    assert value(opened(folder), GOOD, SOURCE) == pytest.approx(before + 1.0, abs=1e-6)


def test_its_size_and_its_files(tmp_path: Path) -> None:
    folder = made(tmp_path)
    size = size_of(Model(source=str(folder)), "comet")
    assert size is not None and size.parameters == sum(own.numel() for own in tensors(folder).values())
    assert size.layers == LAYERS
    digests = [digest_of_model(folder)]
    for name in ("hparams.yaml", "encoder/config.json", "checkpoints/model.ckpt"):
        with (folder / name).open("ab") as file:
            file.write(b"\n")
        digests.append(digest_of_model(folder))
    assert len(set(digests)) == len(digests)


def test_another_folder_of_the_encoder_and_another_type(tmp_path: Path) -> None:
    folder = made(tmp_path / "model")
    before = value(opened(folder), GOOD, SOURCE)
    (folder / "encoder").rename(tmp_path / "elsewhere")
    with pytest.raises(UserError, match=r"has no config\.json and no tokenizer\.json.*as base"):
        opened(folder)
    assert value(opened(folder, base=str(tmp_path / "elsewhere")), GOOD, SOURCE) == before
    half = opened(folder, base=str(tmp_path / "elsewhere"), dtype="bfloat16")
    assert value(half, GOOD, SOURCE) == pytest.approx(before, abs=0.1)


class Code:
    """A pickle that would run something."""

    def __reduce__(self) -> Any:
        return print, ("ran",)


def test_what_is_missing_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = made(tmp_path)
    checkpoint, whole = folder / "checkpoints" / "model.ckpt", tensors(folder)

    def refused(found: Any, reason: str) -> None:
        torch.save(found, checkpoint)
        with pytest.raises(UserError, match=reason):
            opened(folder)

    refused({"state_dict": {**whole, "estimator.ff.0.weight": torch.zeros(2, 2)}}, r"has the shape \[2, 2\]")
    refused({"state_dict": {k: v for k, v in whole.items() if k != "estimator.ff.3.bias"}}, "no tensor 'estimator")
    refused({"model": whole, "epoch": 3}, "has no state_dict, but epoch, model")
    refused(
        {"state_dict": whole, "hyper_parameters": Code()},
        "holds .*print beside tensors and plain values, which may be code",
    )
    refused(Path(), "holds pathlib.*Path")
    checkpoint.write_bytes(pickle.dumps(Code()))
    with pytest.raises(UserError, match="is no checkpoint of PyTorch"):
        opened(folder)
    assert "ran" not in capsys.readouterr().out
    checkpoint.unlink()
    with pytest.raises(UserError, match=r"has no checkpoints/model\.ckpt and no model\.safetensors"):
        opened(folder)
    torch.save({"state_dict": whole}, checkpoint)
    for settings, name in (({"trained": True}, "trained"), ({"context": 5}, "context"), ({"head": "value"}, "head")):
        with pytest.raises(UserError, match=f"leave {name} out"):
            opened(folder, **settings)
    config = folder / "encoder" / "config.json"
    text = config.read_text()
    config.write_text(text.replace(f'"num_hidden_layers": {LAYERS}', '"num_hidden_layers": 1000000000'))
    with pytest.raises(UserError, match="1000000000 layers"):
        opened(folder)
    config.write_text(text.replace('"intermediate_size": 16', '"intermediate_size": 1000000000'))
    with pytest.raises(UserError, match="intermediate"):
        opened(folder)
    config.write_text(text)
    (folder / "hparams.yaml").write_text('{"class_identifier": "ranking_metric"}')
    with pytest.raises(UserError, match="class_identifier is 'ranking_metric'"):
        opened(folder)
    (folder / "hparams.yaml").unlink()
    with pytest.raises(UserError, match="has no hparams"):
        opened(folder)


def test_the_nearest_probabilities() -> None:
    assert sparsemax(torch.tensor([0.0, 0.5, 1.0])).tolist() == pytest.approx([0.0, 0.25, 0.75])
    assert sparsemax(torch.zeros(4)).tolist() == [0.25] * 4
