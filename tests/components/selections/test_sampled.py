"""The settings of selections by rollouts; what stages make of them is in ``tests/stages/test_written.py``."""

import pytest
from pydantic import ValidationError

from posttrain.components.rewards.match import Match
from posttrain.components.selections.sampled import Sampled
from posttrain.methods.preference.dpo import dpo
from posttrain.recipes.changes import preference_of
from posttrain.recipes.overrides import override


def test_one_temperature_or_one_for_each_writer() -> None:
    with pytest.raises(ValidationError, match="3 numbers for 1 writers"):
        Sampled(reward=Match(), temperatures=(0.5, 1.0, 1.5))
    assert Sampled(reward=Match(), writers=("policy", "reference"), temperatures=(0.7, 1.0)).roles == {
        "policy",
        "reference",
    }


def test_from_the_command_line() -> None:
    recipe = override(dpo(), ["dpo.selection={kind: sampled, reward: match, use: shortest}"])
    selection = preference_of(recipe).selection
    assert selection == Sampled(reward=Match(), use="shortest") and selection.writes == {"preferences"}
