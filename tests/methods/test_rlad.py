import pytest

from posttrain.components.curricula.in_order import InOrder
from posttrain.components.objectives.pairwise import Pairwise
from posttrain.components.objectives.ppo_clip import PPOClip
from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.penalties.kl import KL
from posttrain.components.preferences.rpo import RPO
from posttrain.components.rollouts.abstracted import Abstracted
from posttrain.components.selections.by_level import ByLevel
from posttrain.errors import UserError
from posttrain.methods.multi_agent.rlad import rlad
from posttrain.recipes.changes import rl_of
from posttrain.settings.corridor import corridor


def test_the_writer_learns_by_pairs_and_the_solver_by_dapo_with_a_kl() -> None:
    recipe = rlad()
    stage = rl_of(recipe)
    assert isinstance(stage.rollout, Abstracted) and stage.rollout.hints.leaks == 16 and stage.rollout.bare.zeroed
    assert stage.objective == PPOClip(clip_low=0.2, clip_high=0.28) and isinstance(stage.penalties["kl"], KL)
    writer = stage.by_role["writer"].objective
    assert isinstance(writer, Pairwise) and isinstance(writer.loss, RPO) and writer.gap == 0.25
    assert recipe.models["writer"].trained and not recipe.models["reference"].trained
    own = stage.by_role["writer"].learner
    assert own is not None and own.optimizer == AdamW(lr=1e-3) and stage.learner.optimizer == AdamW(lr=2e-4)
    assert not stage.filters, "groups of bare prompts have equal rewards, and are kept for the KL"


def test_problems_come_from_easy_to_medium() -> None:
    """Those that are never solved are left out."""
    stage = rl_of(rlad())
    assert isinstance(stage.selection, ByLevel) and stage.selection.levels == (1, 2, 3, 4, 5) and stage.selection.sort
    assert stage.curriculum == InOrder()


def test_an_environment_of_several_turns_is_refused() -> None:
    with pytest.raises(UserError, match="several turns"):
        rlad(corridor())
