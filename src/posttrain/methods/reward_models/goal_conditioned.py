"""Goal-conditioned reward model: pairs, and states that are like later ones of good answers; then PPO by its score.

Source: Nath et al. 2024, arXiv:2407.13887, and its release (goal-conditioned-rm at 46e3a96). Beside the loss of
Bradley and Terry, states of a chosen completion are drawn towards later ones of it and away from those of its rejected
partner (`contrast` of `stages/reward_model`, weight .5, 16 positions of each). The cosine of the state after a prefix
with the mean last state of correct solutions is then a value of the prefix: ``posttrain diagnose prefixes POLICY
REWARD_MODEL tasks=mine.jsonl verifier=match`` has its AUROC, and votes that leave answers out by it.

    posttrain run goal_conditioned tasks=mine.jsonl model=FOLDER    # columns: prompt, chosen, rejected, answer

Differs: the release's learning rate of .1 for HH, probably a slip, is not copied, and `percentile` is 0 where it fails
without one. Decoding by the values of candidates is left out.

Measured here (``python docs/experiments/prefix_values.py --seeds 5``, sequences whose class shows more and more,
states of width 16): the AUROC of prefixes of 25, 50 and 75 % is .670, .880 and .983 by the head with the contrast and
.669, .879 and .983 without, and .668, .876 and .982 against .666, .875 and .982 by the cosine: no gain. Votes of 16
are better: of all, .453 [.361, .545] are right; above a cosine of -.5 .960 [.917, 1] with 49 % of the tokens saved,
against .777 [.490, 1] with 30 % without the contrast, and above 0 .930 [.893, .967] with 64 % against .887 [.801,
.972] with 62 %; the shares of tasks that fall back to all votes are 1.3, 1.0, 5.7 and 8.7 %. The default run, one
seed: 67.5 % of 200 held-out sums before the reinforcement, 93.0 % after.
"""

from dataclasses import replace
from typing import Final

from posttrain.errors import UserError
from posttrain.methods.policy_gradient.ppo import ppo
from posttrain.recipes.changes import keep_verifier, with_stage
from posttrain.recipes.tree import Recipe
from posttrain.settings.reward_model_sums import reward_model_sums
from posttrain.stages.reward_model import GoalContrast, RewardModelTraining

PARENT: Final = "ppo"
SETTING: Final = "reward_model_sums"
PAPER: Final = "arXiv:2407.13887"
ROWS: Final = (184,)


def goal_conditioned(recipe: Recipe | None = None) -> Recipe:
    """A change to PPO with a reward model: a contrast of states beside the loss of its pairs."""
    recipe = keep_verifier(ppo(recipe or reward_model_sums()))
    stage = next((s for s in recipe.stages.values() if isinstance(s, RewardModelTraining)), None)
    if stage is None:
        raise UserError(
            f"recipe '{recipe.name}' has no stage reward_model, whose states are contrasted; add one, or start from "
            "the setting reward_model_sums"
        )
    return with_stage(replace(recipe, name="goal_conditioned"), replace(stage, contrast=GoalContrast()))
