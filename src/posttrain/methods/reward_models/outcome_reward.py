"""A reward from outcomes: a model of whether rollouts are correct first, then GRPO by its score.

Source: the branch of outcomes of "Inverse RL meets LLM post-training", arXiv:2507.13158, a survey; see
`preference_reward`. The model learns by cross-entropy which rollouts of the policy the rule accepts
(`stages/outcome_model`), and rewards in its place.

    posttrain run outcome_reward tasks=mine.jsonl model=FOLDER    # columns: prompt, answer

Differs: outcomes are those of fresh rollouts, not of a fixed data set.

Measured here: see `preference_reward`. The default run, one seed: 67.5 % of 200 held-out sums before, 92.5 % after.
Its model is fooled, which the setting's audit only measures: no text without content outranks one of 16 right answers,
but at step 20 the policy's own " #### 70" outranks 5 of 16.
"""

from typing import Final

from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.reducers.sequences import Sequences
from posttrain.components.rollouts.independent import Independent
from posttrain.methods.policy_gradient.grpo import grpo
from posttrain.methods.reward_models._from_data import rewarded_by
from posttrain.recipes.changes import rl_of, sampling_of
from posttrain.recipes.tree import Recipe
from posttrain.settings.rewards_from_data import rewards_from_data
from posttrain.stages.outcome_model import OutcomeModelTraining
from posttrain.training.settings import Learning

PARENT: Final = "grpo"
SETTING: Final = "rewards_from_data"
PAPER: Final = "arXiv:2507.13158"
ROWS: Final = (137,)


def outcome_reward(recipe: Recipe | None = None) -> Recipe:
    """A change to GRPO: a model that predicts the outcomes of rollouts is trained first, and rewards."""
    recipe = grpo(recipe or rewards_from_data())
    stage = rl_of(recipe)
    learning = OutcomeModelTraining(
        rollout=Independent(n=4, sampling=sampling_of(stage)),
        reward=stage.reward,
        reducer=Sequences(),
        role="reward",
        steps=40,
        learner=Learning(optimizer=AdamW(lr=1e-3)),
        tasks=stage.tasks,
    )
    return rewarded_by(recipe, learning, name="outcome_reward")
