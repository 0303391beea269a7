"""General-Reasoner: GRPO with a verifier that compares the final answer with the reference in any form.

Source: arXiv:2505.14652 and its release (TIGER-AI-Lab/General-Reasoner): every answer goes to the verifier, none to a
rule; 0.05 less for each token of difference in length, 0.5 less without an answer; groups of 8, clip 0.3 on both sides
with the dual clip at 10, a KL loss of 1e-4, an entropy bonus of 0.001 (`rewards/verified_answer`).

    posttrain run general_reasoner tasks=mine.jsonl reward.verifier=null models.verifier.source=FOLDER_OR_ENDPOINT
    # columns: question, answer; with reward.verifier=listed also forms, a list of right answers

Where the tasks list their right forms, that list is the verifier; otherwise name a model.

Differs: the verifier of the release is a model of 1.5 billion weights that was tuned for it; the learning rate and the
number of tasks are those of the setting.

Measured here over five seeds (`fractions`, 30 steps): 92.8 % [90.0, 95.6] of held-out sums are right in any form, 91.1
% [88.0, 94.1] with the form of the reference as the reward, which leaves 62 % of the groups without a gradient instead
of 25 %. With a verifier that accepts any answer that contains a right one, one seed of five learns to list several
values where length has no price (49 % right, answers of 6.4 pieces instead of 4.4), and none where it has.
"""

from dataclasses import replace
from typing import Final

from posttrain.components.objectives.ppo_clip import PPOClip
from posttrain.components.penalties.entropy import Entropy
from posttrain.components.penalties.kl import KL
from posttrain.components.rewards.listed import Listed
from posttrain.components.rewards.verified_answer import VerifiedAnswer
from posttrain.methods.policy_gradient.grpo import grpo
from posttrain.models import Model
from posttrain.recipes.changes import rl_of, with_models, with_stage
from posttrain.recipes.tree import Recipe
from posttrain.settings.fractions import fractions

PARENT: Final = "grpo"
SETTING: Final = "fractions"
PAPER: Final = "arXiv:2505.14652"
ROWS: Final = (245,)


def general_reasoner(recipe: Recipe | None = None) -> Recipe:
    """A change to GRPO: a verifier of answers as the reward, wider clipping, KL and entropy terms."""
    recipe = grpo(recipe or fractions())
    stage = rl_of(recipe)
    own = stage.reward if isinstance(stage.reward, VerifiedAnswer) else VerifiedAnswer(verifier=Listed())
    stage = replace(
        stage,
        reward=own,
        objective=PPOClip(clip_low=0.3, clip_high=0.3, dual_clip=10.0),
        penalties={"kl": KL(coefficient=1e-4), "entropy": Entropy(coefficient=0.001)},
    )
    recipe = with_models(replace(recipe, name="general_reasoner"), {"reference": Model(source="role:policy")})
    return with_stage(recipe, stage)
