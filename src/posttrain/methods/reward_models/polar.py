"""POLAR: a reward model that distinguishes policies by a reference answer, then PPO towards the reference.

Source: Dou et al. 2025, arXiv:2507.05197, and its release. The reward model reads the prompt twice, with a reference
after the first and the candidate after the second (`tasks/referenced`), and scores at the end token. It is trained
twice by the loss of Bradley and Terry: on triples without labels, where reference and chosen candidate are by one
policy and the rejected one is by another (`tasks/policies`), and on ranked pairs with a reference. PPO then has its raw
score of a rollout beside the reference of the data as the reward (`rewards/referenced_model`), gamma and lambda of 1,
and no KL.

    posttrain run polar tasks=mine.jsonl    # columns: prompt, chosen, rejected, completion (the reference)
    posttrain run polar pretrain.tasks.tasks=triples.jsonl    # the same columns; chosen and completion by one policy

Differs: a pass over the triples is one of letter policies by default, where the release has a large corpus of policies.
Limits of texts are in characters. A failed request there is a failed step; here the model is a role of the recipe.

Measured here, on a bilinear head that reads counts of letters (5 seeds; `docs/experiments/letter_policies.py`): pairs
of policies that were seen are in order in 0.958 [0.928, 0.988] with a reference and 0.499 without, those of two unseen
policies in 0.850 [0.603, 1.000] and 0.504; the paper's claim of above 0.9 holds for the seen ones, and of the unseen
ones in three seeds of five (0.539 where the two differ by 0.2 in total variation). The rejected text as reference
reverses 0.898. Ranked pairs are in order in 0.751 [0.725, 0.777] before any of them; 10 of them from zero give 0.538,
50 give 0.673 [0.639, 0.708] and 200 give 0.737, after the triples 0.689, 0.742 [0.724, 0.760] and 0.751. One seed only,
the default setting: held-out accuracy 67.5 % before and 81.5 % at the end, in 40 s. The audit only measures
(``audit.most_fooled`` is 1): "Thought process:" outranks 2 of 16 right answers.
"""

from dataclasses import replace
from typing import Final

from posttrain.components.advantages.gae import GAE
from posttrain.components.rewards.referenced_model import ReferencedModel
from posttrain.components.tasks.policies import Policies
from posttrain.components.tasks.referenced import Referenced
from posttrain.errors import UserError
from posttrain.methods.policy_gradient.ppo import ppo
from posttrain.recipes.changes import keep_verifier, rl_of, with_stage, with_stages_before, without_models
from posttrain.recipes.tree import Recipe
from posttrain.settings.reward_model_sums import reward_model_sums
from posttrain.stages.reward_model import RewardModelTraining
from posttrain.stages.rl.reward_audit import MEASURED

PARENT: Final = "ppo"
SETTING: Final = "reward_model_sums"
PAPER: Final = "arXiv:2507.05197"
ROWS: Final = (49,)


def polar(recipe: Recipe | None = None) -> Recipe:
    """A change to PPO with a reward model: pairs and rollouts stand after a reference; triples first; no KL."""
    recipe = keep_verifier(ppo(recipe or reward_model_sums()))
    ranked = next((s for s in recipe.stages.values() if isinstance(s, RewardModelTraining)), None)
    if ranked is None:
        raise UserError(
            f"recipe '{recipe.name}' has no stage reward_model, which learns from pairs with a reference; add one, or "
            "start from the setting reward_model_sums"
        )
    stage = rl_of(recipe)
    penalties = {name: penalty for name, penalty in stage.penalties.items() if name != "kl"}
    tuned = replace(ranked, tasks=Referenced(tasks=ranked.tasks or recipe.tasks))
    changed = replace(stage, reward=ReferencedModel(), advantage=GAE(lam=1.0), penalties=penalties, audit=MEASURED)
    recipe = with_stage(with_stage(replace(recipe, name="polar"), tuned), changed)
    triples = replace(ranked, tasks=Referenced(tasks=Policies(), line=""))
    recipe = with_stages_before(recipe, {"pretrain": triples}, tuned)
    return without_models(recipe, "reference")
