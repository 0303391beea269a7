"""A projection beside a language head: its signals, its files, and what it leaves alone."""

from pathlib import Path

import pytest
import torch

from posttrain.errors import UserError
from posttrain.models import Model
from posttrain.policies import Packed
from posttrain.policies.folder import new_folder
from posttrain.policies.loading import load_language_model
from posttrain.signals import EMBEDDING, LOGP, SCORE, VALUE

CPU = torch.device("cpu")
PACKED = Packed(token_ids_L=torch.tensor([3, 4, 5, 6, 7, 8, 9]), starts=(0, 4, 7))
PLACES = torch.tensor([2, 3, 5, 6])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return new_folder(tmp_path / "tiny", layers=1, width=32, heads=2, kv_heads=1, context=64)


def test_values_and_embeddings_are_of_the_states_that_they_name(folder: Path) -> None:
    policy = load_language_model("policy", Model(source=str(folder), projection=5, trained=True), {}, CPU)
    assert policy.projection is not None
    torch.nn.init.normal_(policy.projection.value.weight, generator=torch.Generator().manual_seed(1))
    hidden = policy.body.hidden(PACKED)
    found = policy.evaluate(PACKED, PLACES, frozenset({VALUE, SCORE, EMBEDDING}))
    embedding, values = policy.projection(hidden)
    assert torch.equal(found[EMBEDDING], embedding[PLACES]) and found[EMBEDDING].shape == (4, 5)
    torch.testing.assert_close(found[SCORE], values[PLACES])
    torch.testing.assert_close(found[VALUE], values[PLACES - 1])
    weights = [policy.projection.embed.weight, policy.body.get_parameter("model.layers.0.mlp.up_proj.weight")]
    assert all(g.abs().max() > 0 for g in torch.autograd.grad(found[SCORE].sum(), weights))


def test_what_the_language_head_gives_is_the_same(folder: Path) -> None:
    plain = load_language_model("policy", Model(source=str(folder)), {}, CPU)
    projected = load_language_model("policy", Model(source=str(folder), projection=5), {}, CPU)
    found = [policy.evaluate(PACKED, PLACES)[LOGP] for policy in (plain, projected)]
    assert torch.equal(*found)
    with pytest.raises(UserError, match=r"it gives certainty and entropy .*, not embedding"):
        plain.evaluate(PACKED, PLACES, frozenset({EMBEDDING}))


def test_it_is_saved_and_copied(folder: Path, tmp_path: Path) -> None:
    policy = load_language_model("policy", Model(source=str(folder), projection=5), {}, CPU)
    assert policy.projection is not None
    torch.nn.init.constant_(policy.projection.value.weight, 0.5)
    (tmp_path / "saved").mkdir()
    policy.save(tmp_path / "saved")
    copies = [
        load_language_model("policy", Model(source=str(tmp_path / "saved"), projection=5), {}, CPU),
        load_language_model("other", Model(source="role:policy", projection=5), {"policy": policy}, CPU),
    ]
    for copy in copies:
        assert copy.projection is not None and copy.projection is not policy.projection
        assert all(
            torch.equal(a, b) for a, b in zip(copy.projection.parameters(), policy.projection.parameters(), strict=True)
        )
    plain = load_language_model("other", Model(source="role:policy"), {"policy": policy}, CPU)
    assert plain.projection is None
    with pytest.raises(UserError, match=r"projection .* has the tensors .* this model needs"):
        load_language_model("policy", Model(source=str(tmp_path / "saved"), projection=6), {}, CPU)
