"""What goes into a model's last MLP."""

import numpy as np
import pytest
import torch

from posttrain.errors import UserError
from posttrain.models import Model
from posttrain.policies.loading import load_policy
from posttrain.policies.mlp_inputs import last_mlp_inputs


def test_inputs_of_the_last_mlp_are_normed_states() -> None:
    policy = load_policy("policy", Model(source="pebble"), {}, torch.device("cpu"))
    texts = [np.array([1, 5, 9, 7]), np.array([1, 5])]
    long, short = last_mlp_inputs(policy, "policy", texts)
    assert long.shape == (4, policy.body.width) and short.shape == (2, policy.body.width)
    assert np.allclose(long[:2], short, atol=1e-5), "causal, and no sequence depends on another"
    last = next(m for name, m in policy.named_modules() if name.endswith(f"{_last(policy)}.post_attention_layernorm"))
    unscaled = long / last.weight.detach().numpy()
    assert np.allclose(np.sqrt((unscaled**2).mean(1)), 1.0, atol=1e-2), "states after a norm have a mean square of 1"
    assert not any(getattr(module, "watched", False) for module in policy.modules())


def test_a_model_without_such_a_layer_is_refused() -> None:
    policy = torch.nn.Linear(2, 2)
    with pytest.raises(UserError, match="no MLP by the usual names"):
        last_mlp_inputs(policy, "policy", [])  # type: ignore[arg-type]


def _last(policy: torch.nn.Module) -> str:
    """The prefix of the last layer's modules."""
    names = [name for name, _ in policy.named_modules() if name.endswith("mlp.up_proj")]
    return str(names[-1]).removesuffix(".mlp.up_proj")
