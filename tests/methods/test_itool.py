import pytest

from posttrain.components.pairings.fragments import Fragments, Growth
from posttrain.components.preferences.simpo import SimPO
from posttrain.components.selections.hardest import Hardest
from posttrain.components.selections.paired import Paired
from posttrain.components.tasks.tool_requests import ToolRequests
from posttrain.errors import UserError
from posttrain.methods.agents.itool import itool
from posttrain.settings.sum_pairs import sum_pairs
from posttrain.stages.preference import PreferenceTraining
from posttrain.stages.sft import SFT


def test_imitation_is_from_easy_to_hard_and_rounds_follow() -> None:
    recipe = itool()
    assert list(recipe.stages) == ["easy", "hard", "round_1", "round_2", "round_3"]
    levels = [s.tasks.level for s in recipe.stages.values() if isinstance(s, SFT) and isinstance(s.tasks, ToolRequests)]
    assert levels == [1, 2] and "reference" not in recipe.models


def test_a_round_searches_the_hardest_three_in_ten_of_each_class() -> None:
    stage = itool().stages["round_2"]
    assert isinstance(stage, PreferenceTraining) and stage.loss == SimPO(beta=2.5, gamma=1.25) and stage.limit == 4000
    mined = stage.selection
    assert isinstance(mined, Hardest) and mined.share == 0.3 and isinstance(mined.then, Paired)
    search = mined.then.pairing
    assert isinstance(search, Fragments) and search.growth == Growth(
        actions=3, simulations=10, depth=3, exploration=1.0
    )
    assert (search.gap, search.least, search.alike, search.sampling.temperature) == (0.5, 0.25, 0.95, 1.0)
    released = Fragments()
    assert released.growth == Growth() and (released.gap, released.least, released.sampling.temperature) == (
        0.1,
        -0.3,
        1.5,
    )


def test_without_a_verifier_it_is_refused() -> None:
    from dataclasses import replace

    recipe = sum_pairs()
    with pytest.raises(UserError, match="verifier"):
        itool(replace(recipe, evaluation=replace(recipe.evaluation, verifier=None)))
