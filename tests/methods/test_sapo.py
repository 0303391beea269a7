"""SAPO with nothing of others' is GRPO of a node alone."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from posttrain.components.filters.exchange import Exchange
from posttrain.components.rewards.regex import Regex
from posttrain.components.rollouts.independent import Independent
from posttrain.methods.multi_agent.sapo import sapo
from posttrain.policies.folder import new_folder
from tests.conformance.test_methods import made_small, run


@pytest.mark.slow
def test_a_node_that_takes_nothing_is_grpo_alone_bit_for_bit(tmp_path: Path) -> None:
    """One node: its rollouts are those of independent sampling, and a filter that keeps all of its own changes none."""
    tiny = new_folder(tmp_path / "tiny", layers=1, width=16, heads=2, kv_heads=1, context=256)
    recipe = made_small(sapo(), tiny)
    stage: Any = recipe.stages["rl"]
    stage = replace(stage, reward=Regex(pattern="[a-m]"))
    models = {"policy": recipe.models["policy"]}
    swarm = replace(stage.rollout, nodes=("policy",))
    alone = Independent(n=swarm.n, sampling=swarm.sampling)
    found = []
    for rollout, filters in ((swarm, {"exchange": Exchange(own=64, external=0)}), (alone, {})):
        own = replace(recipe, models=models, stages={"rl": replace(stage, rollout=rollout, filters=filters)})
        found.append(run(own, tmp_path / rollout.kind))
    (one, record), (other, record_alone) = found
    assert record.rollouts(1)[0]["completion"] == record_alone.rollouts(1)[0]["completion"]
    weights = other["policy"].state_dict()
    assert all(torch.equal(tensor, weights[name]) for name, tensor in one["policy"].state_dict().items())
    assert record.metrics() == record_alone.metrics()
    assert any(entry["gradient_norm"] for entry in record.metrics()), "it learned nothing, so that nothing is compared"
