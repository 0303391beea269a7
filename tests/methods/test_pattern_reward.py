"""The reasoning pattern reward under PPO: low scores raised, undiscounted returns, one pass."""

from posttrain.components.rewards.match import Match
from posttrain.components.rewards.phrases import Phrases
from posttrain.components.rewards.raised import Raised
from posttrain.methods.rewards.pattern_reward import ROWS, pattern_reward
from posttrain.recipes.changes import rl_of
from posttrain.settings.arithmetic import arithmetic
from posttrain.settings.missed_sums import missed_sums


def test_what_it_changes() -> None:
    stage = rl_of(pattern_reward())
    assert stage.reward == Raised(of=rl_of(missed_sums()).reward.of, by=rl_of(missed_sums()).reward.by, weight=0.1)  # type: ignore[attr-defined]
    assert (stage.advantage.gamma, stage.advantage.lam) == (1.0, 1.0)  # type: ignore[attr-defined]
    assert stage.penalties.keys() == {"entropy"} and stage.learner.epochs == 1 and ROWS == (154,)
    assert not stage.filters, "a critic compares across groups"


def test_another_reward_is_raised_by_the_forty_phrases_and_still_verifies() -> None:
    recipe = pattern_reward(arithmetic())
    assert rl_of(recipe).reward == Raised(of=Match(), by=Phrases()) and recipe.evaluation.verifier == Match()
