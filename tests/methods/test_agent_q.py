import pytest

from posttrain.components.objectives.pairwise import Pairwise
from posttrain.components.preferences.dpo import DPO
from posttrain.components.rollouts.step_search import StepSearch, TreeSettings
from posttrain.errors import UserError
from posttrain.methods.agents.agent_q import agent_q
from posttrain.recipes.changes import rl_of
from posttrain.settings.arithmetic import arithmetic
from posttrain.settings.shop import shop


def test_pairs_are_siblings_of_a_search_against_logged_likelihoods() -> None:
    stage = rl_of(agent_q())
    assert stage.objective == Pairwise(loss=DPO(beta=0.1, reference="old"), gap=0.2)
    assert stage.old_logp == "sampled" and not stage.filters
    assert isinstance(stage.rollout, StepSearch) and stage.rollout.search == TreeSettings(alpha=1.0)


def test_the_environment_of_the_setting_is_searched() -> None:
    rollout, own = rl_of(agent_q(shop())).rollout, rl_of(shop()).rollout
    assert isinstance(rollout, StepSearch) and rollout.environment == getattr(own, "environment")  # noqa: B009
    assert (rollout.n, rollout.max_turns) == (8, 10)


def test_single_answers_have_nothing_to_search() -> None:
    with pytest.raises(UserError, match="needs an environment"):
        agent_q(arithmetic())
