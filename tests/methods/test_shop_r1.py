"""Shop-R1: what it changes, and the bonus for a rationale's tokens from the text of a completion on."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from posttrain.components.penalties.self_certainty import SelfCertainty
from posttrain.components.rewards.next_action import NextAction
from posttrain.components.rollouts import Spans
from posttrain.methods.policy_gradient.grpo import grpo
from posttrain.methods.rewards.shop_r1 import shop_r1
from posttrain.models import Model
from posttrain.policies.folder import new_folder
from posttrain.policies.loading import load_policy
from posttrain.recipes.changes import rl_of
from posttrain.recipes.differences import differences
from posttrain.recipes.overrides import override
from posttrain.recipes.tree import Recipe
from posttrain.settings.recorded_shopping import recorded_shopping
from posttrain.signals import OLD_CERTAINTY
from posttrain.stages.rl.spans import with_spans
from posttrain.types import Group, Segment
from tests.builders import trajectory

Small = Callable[..., Recipe]


def test_it_is_grpo_with_levels_and_certainty() -> None:
    changed = {difference.path for difference in differences(grpo(recorded_shopping()), shop_r1())}
    assert changed == {
        "reward.levels",
        "rollout.sampling.temperature",
        "penalties.kl",
        "penalties.self_certainty",
        "models.reference",
    }
    assert rl_of(shop_r1()).reward == NextAction()
    own = override(recorded_shopping(), ["reward.similar=0.5"])
    assert rl_of(shop_r1(own)).reward == NextAction(similar=0.5)


def test_the_rationale_is_found_in_tokens(tmp_path: Path) -> None:
    folder = new_folder(tmp_path / "tiny", layers=1, width=16, heads=2, kv_heads=1, context=256)
    models = {"policy": load_policy("policy", Model(source=str(folder)), {}, torch.device("cpu"))}
    text = '{"rationale": "so it is", "action": {"type": "terminate"}}'
    ids = models["policy"].tokenizer.encode_open(text)
    written = Segment(actor="policy", token_ids=ids, trained=True, text=text, logp=np.zeros(len(ids), np.float32))
    one = replace(trajectory(), segments=(trajectory().segments[0], written))
    penalty = SelfCertainty(coefficient=1.0)
    (group,) = with_spans([Group(trajectories=(one,))], penalty.tags, models)
    spans = group.trajectories[0].fact(Spans)
    assert spans is not None and not spans.closings
    ((start, end),) = spans.ranges['"rationale"']
    assert models["policy"].tokenizer.decode(written.token_ids[start:end]) == "so it is"
    bonus = penalty.in_reward(group.trajectories[0], {OLD_CERTAINTY: np.full(len(written), 2.0, np.float32)})
    assert bonus.sum() == pytest.approx(2.0) and not bonus[:start].any() and not bonus[end:].any()
