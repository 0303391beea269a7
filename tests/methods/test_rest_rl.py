"""ReST-RL as a whole: the parts are combined as in the paper; the stage itself is tested with the stages."""

from typing import Any

from posttrain.components.search.tree import Tree
from posttrain.methods.search.rest_rl import ROWS, rest_rl


def test_what_collects_and_what_answers() -> None:
    recipe = rest_rl()
    assert list(recipe.stages) == ["rl", "values"] and ROWS == (226,)
    values: Any = recipe.stages["values"]
    collecting, answering = values.search, recipe.evaluation.search
    assert isinstance(collecting, Tree) and isinstance(answering, Tree)
    assert (collecting.exploration, collecting.keep, collecting.uses_rewards) == (0.2, 3, True)
    assert (answering.exploration, answering.keep, answering.iterations, answering.samples) == (0.1, 5, 15, 5)
    assert values.roles == {"policy", "value"} and not answering.uses_rewards
    rl: Any = recipe.stages["rl"]
    assert values.reward is rl.reward
