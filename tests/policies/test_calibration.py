"""What models are measured by on calibration texts."""

from pathlib import Path

import pytest
import torch

from posttrain.policies import Packed
from posttrain.policies.calibration import Text, input_means, sensitivities
from posttrain.policies.folder import new_folder
from posttrain.signals import LOGP
from tests.policies.made_models import load, packed_logits, random_sequences


def texts() -> list[Text]:
    ids = torch.arange(16) % 50
    return [Text(packed=Packed(token_ids_L=ids, starts=(0, 16)), positions_T=torch.arange(1, 16))]


def test_inputs_of_the_first_layer_are_normed_embeddings(tmp_path: Path) -> None:
    policy = load(new_folder(tmp_path / "m", layers=2, width=32, heads=2, kv_heads=1, context=64))
    before = packed_logits(policy.body, random_sequences(9))
    found = input_means(policy, texts())
    embedded = policy.body.get_parameter("model.embed_tokens.weight")[texts()[0].packed.token_ids_L]
    normed = policy.body.get_submodule("model.layers.0.input_layernorm")(embedded)
    for name in ("q_proj", "v_proj"):
        weight = f"body.model.layers.0.self_attn.{name}.weight"
        assert torch.allclose(found[weight], normed.abs().double().mean(0), rtol=1e-4)
    assert {type(m) for m in policy.modules() if isinstance(m, torch.nn.Linear)} == {torch.nn.Linear}
    assert torch.equal(packed_logits(policy.body, random_sequences(9)), before)
    assert found.keys() <= dict(policy.named_parameters()).keys()


def test_sensitivities_are_weight_times_gradient(tmp_path: Path) -> None:
    """Of the scale of one weight by its derivative, from finite differences."""
    policy = load(new_folder(tmp_path / "m", layers=1, width=16, heads=2, kv_heads=1, context=64))
    [text] = texts()
    found = sensitivities(policy, [text])
    assert all(p.grad is None and not p.requires_grad for p in policy.parameters())
    policy.double()
    norm = policy.body.get_parameter("model.norm.weight")
    total, step = 0.0, 1e-5
    with torch.no_grad():
        for i in range(len(norm)):
            losses = []
            for sign in (1, -1):
                norm[i] += sign * step
                losses.append(-float(policy.evaluate(text.packed, text.positions_T)[LOGP].mean()))
                norm[i] -= sign * step
            total += abs(float(norm[i]) * (losses[0] - losses[1]) / (2 * step))
    assert found["body.model.norm.weight"] == pytest.approx(total, rel=1e-3)
