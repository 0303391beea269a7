"""A reward from pairs: the survey's branch of preferences, a Bradley-Terry model first, then GRPO by its score.

Source: "Inverse RL meets LLM post-training", arXiv:2507.13158, a survey: text is generated in a process with known
dynamics and without a reward, so that alignment infers a reward from data and then optimizes it. Its branches with
their methods and parts are in docs/rewards-from-data.md. `preference_reward`, `demonstration_reward` and
`outcome_reward` differ from GRPO by the rule only in the reward, its model and the stage before the reinforcement.

    posttrain run preference_reward tasks=mine.jsonl model=FOLDER    # columns: prompt, chosen, rejected, answer

Differs: the survey's text was not read; it has no formula of its own.

Measured here (``python docs/experiments/rewards_from_data.py --seeds 5``): 60 answers, 12 of them correct, rewards
that see 8 of 12 features, and 60 exact gradients. A policy by the rule is correct with probability .969, by outcomes
.997 [.996, .998], by 200 pairs .997 [.996, .998], by demonstrations .996 [.994, .998], and by 30 pairs .797 [.248, 1]:
it fails in one seed. The best of 16 answers is correct with .971 by the rule, .885 by outcomes, .801 by 200 pairs,
.815 by demonstrations and .587 by 30 pairs. Bradley-Terry finds the order of 20 items from 2,000 pairs with Kendall's
tau .903 [.860, .946] and a calibration error of .012. The discriminator prefers an expert's answer to the policy's
with .886 before the reinforcement and .185 after it: the gap does not close, it reverses, since nothing renews it. The
default run, one seed: 67.5 % of 200 held-out sums before, 91.0 % after.
"""

from typing import Final

from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.reducers.sequences import Sequences
from posttrain.methods.policy_gradient.grpo import grpo
from posttrain.methods.reward_models._from_data import rewarded_by
from posttrain.recipes.tree import Recipe
from posttrain.settings.rewards_from_data import rewards_from_data
from posttrain.stages.reward_model import RewardModelTraining
from posttrain.training.settings import Learning

PARENT: Final = "grpo"
SETTING: Final = "rewards_from_data"
PAPER: Final = "arXiv:2507.13158"
ROWS: Final = (137,)


def preference_reward(recipe: Recipe | None = None) -> Recipe:
    """A change to GRPO: a reward model of the data's pairs is trained first, and rewards."""
    learning = RewardModelTraining(reducer=Sequences(), max_steps=20, learner=Learning(optimizer=AdamW(lr=3e-4)))
    return rewarded_by(grpo(recipe or rewards_from_data()), learning, name="preference_reward")
