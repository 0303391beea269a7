"""What is sent to another process names the models and the parts of the one that learns, and copies nothing of them."""

from functools import partial
from typing import Any

import pytest
import torch
from torch import nn

from posttrain.cluster._references import dumps, loads
from posttrain.models import Model
from posttrain.policies import Policy
from posttrain.policies.folder import new_folder
from posttrain.policies.loading import load_policy

pytest.importorskip("ray")


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> tuple[Policy, Policy]:
    """Two reward models, each with a part of its own for what users like."""
    folder = new_folder(tmp_path_factory.mktemp("models") / "tiny", layers=1, width=16, heads=2, kv_heads=1, context=32)
    model = Model(source=str(folder), head="reward", latent=4, trained=True)
    one, other = (load_policy("reward", model, {}, torch.device("cpu")) for _ in range(2))
    return one, other


def test_a_part_of_the_model_that_learns_is_that_of_the_copy_there(two: tuple[Policy, Policy]) -> None:
    here, there = two
    part: Any = here.latent
    sent = dumps(partial(max, part, here), lambda policy: "reward-0", here)
    found = loads(sent, {"reward-0": there})
    assert found.args == (there.latent, there)
    assert len(sent) < 1000


def test_weights_that_are_learned_elsewhere_are_not_sent(two: tuple[Policy, Policy]) -> None:
    """Their copy would get gradients that nobody reads. What is frozen is sent as it is."""
    own = nn.Linear(2, 2)
    for value in (own, own.weight):
        with pytest.raises(TypeError, match="weights that are learned and are no part of the model that learns"):
            dumps(partial(max, value), lambda policy: "reward-0", two[0])
    with pytest.raises(TypeError, match="no part of the model"):
        dumps(partial(max, two[0].latent), lambda policy: "reward-0")
    own.requires_grad_(False)
    torch.testing.assert_close(loads(dumps(own, lambda policy: ""), {}).weight, own.weight)
