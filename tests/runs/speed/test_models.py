"""Models that end as often as is wanted, wherever they stand."""

from pathlib import Path

import pytest
import torch

from posttrain.models import Model
from posttrain.policies import Packed
from posttrain.policies._byte_tokenizer import END_TOKEN_ID
from posttrain.policies.loading import load_policy
from posttrain.runs.speed._models import make_model
from posttrain.runs.speed.sizes import SIZES, Size

QWEN2 = Size(name="q", family="qwen2", layers=2, width=32, heads=4, kv_heads=2, mlp_width=64, vocabulary=300)


def end_probabilities(folder: Path) -> torch.Tensor:
    """Of the end token, at the places of other texts than those that it was set on."""
    policy = load_policy("policy", Model(source=str(folder)), {}, torch.device("cpu"))
    ids = torch.randint(0, 256, (400,), generator=torch.Generator().manual_seed(7))
    with torch.no_grad():
        hidden = policy.body.hidden(Packed(token_ids_L=ids, starts=(0, 200, 400)))
        return policy.body.logits(hidden).softmax(-1)[:, END_TOKEN_ID]


@pytest.mark.parametrize("size", [SIZES["0.2M"], QWEN2], ids=lambda size: size.name)
def test_the_end_comes_with_its_probability(size: Size, tmp_path: Path) -> None:
    ends = end_probabilities(make_model(tmp_path / "m", size, 1 / 48))
    assert float(ends.mean()) == pytest.approx(1 / 48, rel=0.1)
    assert float(ends.min()) > 0.5 / 48 and float(ends.max()) < 2 / 48


def test_a_model_that_never_ends(tmp_path: Path) -> None:
    assert float(end_probabilities(make_model(tmp_path / "m", SIZES["0.2M"], 0.0)).max()) < 1e-12


def test_a_folder_that_is_there_is_kept(tmp_path: Path) -> None:
    folder = make_model(tmp_path / "m", QWEN2, 0.0)
    before = (folder / "model.safetensors").stat().st_mtime_ns
    assert make_model(folder, QWEN2, 0.0) == folder
    assert (folder / "model.safetensors").stat().st_mtime_ns == before
