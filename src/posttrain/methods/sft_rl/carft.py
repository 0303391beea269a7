"""CARFT: ReFT with a contrastive loss that draws correct rollouts to the annotated solutions.

Source: Zhu et al. 2025, arXiv:2508.15868, and its released code, variants v4 (correct rollouts), v10 (wrong ones too)
and v11 (partial reward). The policy has a projection of its last states to 64 numbers e, and a value v read from them,
which is its critic: the value loss (weight 5) is added to the policy's, and so is the contrastive loss (weight 0.1,
temperature 0.2) of the embeddings sum_t softmax(v)_t e_t of rollouts and of annotated solutions, which are in the
columns of demonstrations. PPO as in ReFT, with a KL of 0.05 to the model after SFT in the reward.

    posttrain run carft tasks=mine.jsonl model=FOLDER    # columns: prompt, answer (a number), completion (to imitate)
    posttrain run carft penalties.contrast.negatives=true                  # v10: common and differing parts
    posttrain run carft penalties.contrast.form=released                   # what the release computes

A reward of another kind than `match` is kept; the partial reward (`agreement`) then holds where it finds an answer.

`CHANGES`: the projection is the policy's.

Differs: no dropout before the projection. A tenth of a demonstration's tokens is left out of its embedding in all
variants, and of a rollout's in none (in v10 both, by an argument that is ignored). Which variant the paper's tables are
of is unknown; the default here has correct rollouts and the partial reward.

Measured here (40 steps of SFT, 30 of PPO at the rate 5e-4, 5 seeds): held-out accuracy falls from 85.0 % after SFT to
75.2 % [70.2, 80.2] without the contrast, 73.4 % [66.6, 80.2] with it, 75.4 % [69.2, 81.6] in the released form and
70.8 % [60.0, 81.6] with ReFT. No difference is one that five seeds can show: the contrast -1.8 points [-9.2, +5.6]
(99.17 %). A fall of 20 points or more is in one run of ReFT and in none of the others. Embeddings are nearly parallel
from the start: cosines of 0.99 with the demonstration for correct rollouts and 0.89 for wrong ones in the first step of
one seed, so that most numerators are beyond the limit of 0.9 (docs/experiments.md).
"""

from dataclasses import replace
from typing import Final

from posttrain.components.penalties.agreement import Agreement
from posttrain.components.penalties.contrast import Contrast
from posttrain.components.penalties.kl import KL
from posttrain.components.penalties.value import Value
from posttrain.methods.sft_rl.reft import reft
from posttrain.recipes.changes import rl_of, with_stage, without_models
from posttrain.recipes.tree import Recipe
from posttrain.settings.single_sums import single_sums
from posttrain.stages.rl.roles import RoleLearning

PARENT: Final = "reft"
SETTING: Final = "single_sums"
PAPER: Final = "arXiv:2508.15868"
ROWS: Final = (247,)
CHANGES: Final = ("models.policy.projection",)


def carft(recipe: Recipe | None = None) -> Recipe:
    """A change to ReFT: a policy that is its own critic, with a contrastive loss and a partial reward by agreement."""
    recipe = with_own_critic(reft(recipe or single_sums()))
    stage = rl_of(recipe)
    kl = stage.penalties["kl"]
    penalties = {
        **stage.penalties,
        "kl": replace(kl, coefficient=0.05) if isinstance(kl, KL) else kl,
        "contrast": Contrast(),
        "agreement": Agreement(),
    }
    return with_stage(replace(recipe, name="carft"), replace(stage, penalties=penalties))


def with_own_critic(recipe: Recipe) -> Recipe:
    """The recipe with a projection of the policy in the place of a critic."""
    stage = rl_of(recipe)
    own = replace(stage.by_role.get("policy", RoleLearning()), critic="policy")
    stage = replace(
        stage,
        critic=None,
        by_role={**stage.by_role, "policy": own},
        penalties={**stage.penalties, "value": Value()},
    )
    policy = recipe.models["policy"]
    policy = replace(policy, projection=policy.projection or 64)
    recipe = with_stage(replace(recipe, models={**recipe.models, "policy": policy}), stage)
    return without_models(recipe, "critic")
