"""Rewards that are inferred from data: the map of the survey is true, and four recipes differ in the reward alone."""

import re
from pathlib import Path

import pytest

from posttrain.components.alarms import Alarm
from posttrain.components.rewards import Reward
from posttrain.components.search import Search
from posttrain.methods.policy_gradient.grpo import grpo
from posttrain.methods.reward_models.demonstration_reward import demonstration_reward
from posttrain.methods.reward_models.outcome_reward import outcome_reward
from posttrain.methods.reward_models.preference_reward import preference_reward
from posttrain.recipes.catalogue import entries
from posttrain.recipes.differences import differences
from posttrain.settings.rewards_from_data import rewards_from_data
from posttrain.stages import Stage

PAGE = Path(__file__).parents[2] / "docs" / "rewards-from-data.md"
METHODS = {entry.name for entry in entries("recipe")}


def names(cell: str) -> set[str]:
    return set(re.findall(r"`(\w+)`", cell))


def rows() -> list[list[str]]:
    _, _, rest = PAGE.read_text().partition("<!-- map: begin -->")
    lines = [line for line in rest.partition("<!-- map: end -->")[0].splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def test_every_branch_has_methods_stages_and_rewards_that_exist() -> None:
    found = rows()
    assert len(found) == 8
    for data, _, methods, stages, rewards in found:
        assert names(methods) and names(methods) <= METHODS, data
        assert names(stages) and names(stages) <= set(Stage.kinds()), data
        assert names(rewards) <= set(Reward.kinds()), data
    below = PAGE.read_text().partition("<!-- map: end -->")[2]
    assert names(below) <= METHODS | set(Search.kinds()) | set(Alarm.kinds())


@pytest.mark.parametrize("method", [preference_reward, demonstration_reward, outcome_reward])
def test_only_the_reward_its_model_and_the_stage_before_differ(method: object) -> None:
    ruled, inferred = grpo(rewards_from_data()), method()  # type: ignore[operator]
    assert list(inferred.stages) == ["inferred", "rl"] and inferred.evaluation == ruled.evaluation
    changed = {".".join(line.keys) for line in differences(ruled, inferred)}
    assert changed, "there is a difference"
    assert all(re.match(r"(models\.reward|stages\.inferred|stages\.rl\.reward)\b", path) for path in changed), changed
