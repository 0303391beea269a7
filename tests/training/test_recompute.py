"""Layers that the backward pass computes again: the bits of a run without, and less that is kept."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from posttrain.components.objectives.ppo_clip import PPOClip
from posttrain.components.reducers.tokens import Tokens
from posttrain.errors import UserError
from posttrain.models import LoRA, Model
from posttrain.policies.folder import new_folder
from posttrain.policies.loading import load_policy
from posttrain.training.learner import Learner, Loss
from posttrain.training.settings import Learning
from tests.cluster.test_sums import examples
from tests.policies.made_models import make_folder

LOSS = Loss(per_token=PPOClip(), reducer=Tokens())


def learned(folder: Path, model: dict[str, Any], recompute: bool) -> tuple[dict[str, bytes], int]:
    """Weights after two updates, and the most bytes that a forward pass kept."""
    torch.manual_seed(0)
    policy = load_policy("policy", Model(source=str(folder), trained=True, **model), {}, torch.device("cpu"))
    learner = Learner(policy, Learning(recompute=recompute), seed=0, num_steps=2)
    own, kept = {p.data_ptr() for p in policy.parameters()}, dict[int, int]()

    def keep(tensor: Tensor) -> Tensor:
        if tensor.untyped_storage().data_ptr() not in own:
            kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    evaluate = policy.evaluate

    def watched(*given: Any, **named: Any) -> Any:
        with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
            return evaluate(*given, **named)

    policy.evaluate = watched  # type: ignore[method-assign]
    for _ in range(2):
        learner.step(examples(), LOSS, progress=0.0)
    weights = {n: p.detach().reshape(-1).view(torch.uint8).numpy().tobytes() for n, p in policy.named_parameters()}
    return weights, sum(kept.values())


@pytest.mark.parametrize("model", [{}, {"dtype": "bfloat16"}, {"lora": LoRA(rank=2)}], ids=["float32", "bf16", "lora"])
def test_it_changes_no_bit_and_keeps_less(model: dict[str, Any], tmp_path: Path) -> None:
    folder = new_folder(tmp_path / "tiny", layers=6, width=36, heads=2, kv_heads=1, context=128)
    plain, much = learned(folder, model, recompute=False)
    again, less = learned(folder, model, recompute=True)
    assert again == plain
    assert less < 0.6 * much


def test_other_bodies_are_refused(tmp_path: Path) -> None:
    make_folder(tmp_path / "other", "GPT2Config", {"n_embd": 48, "n_layer": 2, "n_head": 4, "n_positions": 128})
    policy = load_policy("policy", Model(source=str(tmp_path / "other"), trained=True), {}, torch.device("cpu"))
    with pytest.raises(UserError, match=r"learner\.recompute is for decoders that run natively, not for the"):
        Learner(policy, Learning(recompute=True), seed=0, num_steps=1)
    Learner(policy, Learning(), seed=0, num_steps=1)
