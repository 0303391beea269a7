from pathlib import Path

import pytest
import torch

from posttrain.components.hooks import RoleState
from posttrain.components.hooks.qk_clip import QKClip
from posttrain.components.shapes.decoder import Decoder
from posttrain.errors import UserError
from posttrain.models import Model
from posttrain.policies.attention_logits import largest_logits
from posttrain.policies.loading import load_policy
from tests.builders import group


def llama(tmp_path: Path, *, kv_heads: int, architecture: str = "llama") -> RoleState:
    shape = Decoder(
        architecture=architecture,
        layers=2,
        width=16,
        heads=4,
        kv_heads=kv_heads,
        mlp_width=16,
        context=64,  # type: ignore[arg-type]
    )
    policy = load_policy("policy", Model(source=str(shape.make(tmp_path / "m"))), {}, torch.device("cpu"))
    with torch.no_grad():
        attention = policy.body.model.layers[1].self_attn  # type: ignore[attr-defined]
        attention.q_proj.weight[4:8] *= 400.0
        attention.k_proj.weight[: 4 * kv_heads] *= 20.0
    return RoleState(role="policy", model=policy, groups=(group([0.0, 1.0], length=12),))


@pytest.mark.parametrize("kv_heads", [4, 2])
def test_qk_clip_bounds_the_logits_of_a_head_and_leaves_the_others(tmp_path: Path, kv_heads: int) -> None:
    state = llama(tmp_path, kv_heads=kv_heads)
    texts = [t.token_ids for t in state.groups[0]]
    before = {name: p.clone() for name, p in state.model.named_parameters()}
    largest = [own for _, own in largest_logits(state.model, texts)]
    tau = float(largest[1].sort().values[-2]) * 1.5
    assert tau > 0 and float(largest[1][1]) > 2 * tau and float(largest[0].max()) < tau
    QKClip(tau=tau, every=2)(1, {"policy": state})
    assert all(torch.equal(p, before[name]) for name, p in state.model.named_parameters()), "not due"
    QKClip(tau=tau)(1, {"policy": state})
    after = [own for _, own in largest_logits(state.model, texts)]
    assert float(after[1][1]) == pytest.approx(tau, rel=1e-4)
    changed = {name for name, p in state.model.named_parameters() if not torch.equal(p, before[name])}
    keys = {"k_proj"} if kv_heads == 4 else set()
    assert {name.split(".")[-2] for name in changed} == {"q_proj"} | keys and all("layers.1." in n for n in changed)
    query = next(p for name, p in state.model.named_parameters() if name.endswith("layers.1.self_attn.q_proj.weight"))
    was = next(p for name, p in before.items() if name.endswith("layers.1.self_attn.q_proj.weight"))
    assert torch.equal(query[:4], was[:4]) and torch.equal(query[8:], was[8:]), "other heads keep their bits"


def test_qk_clip_is_refused_where_norms_bound_the_logits(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="norms of queries and keys"):
        QKClip()(1, {"policy": llama(tmp_path, kv_heads=2, architecture="qwen3")})
