"""PF-PPO: PPO on the best and the worst rollout of each prompt, where a reward model is most reliable.

Source: Shen and Zhang 2024 (Policy Filtration), arXiv:2409.06957, section 4, and its released code, whose default is
best and worst. Best and random is `filters.filtration.against=random`; best alone, which the paper finds worse than
plain PPO, is `'filters.filtration={kind: ranked, keep: 0.001}'`. The release's first variant, which draws rollouts
again, is `pf_ppo_reweighted`. The paper selects a strategy by R^2 of the true score,
given the reward, over the rollouts that it keeps (`posttrain diagnose reliability`).

Differs: this is the release's second variant, which drops the other rollouts before advantages are computed. Rewards
are not divided by a running std. The reward is that of the setting, here a rule without errors; one that errs in the
middle of its scale is `reward={kind: unreliable, of: REWARD}`.

Measured here: on a bandit whose reward is noisiest in the middle of its scale (30 steps, 5 seeds), true reward of
samples in the last five steps: 0.996 with all five rollouts, 0.996 with the best and the worst, -0.001 [-0.003,
+0.001], 0.985 with the best and a random one, -0.011 [-0.019, -0.004], and 0.690 with the best alone, -0.307 [-0.354,
-0.259]. Over all steps the best and the worst are lower, -0.028 [-0.037, -0.020], with two fifths of the tokens. With
equal noise everywhere the order is the same (docs/experiments.md).
"""

from dataclasses import replace
from typing import Final

from posttrain.components.filters.best_and_worst import BestAndWorst
from posttrain.components.rollouts.independent import Independent
from posttrain.methods.policy_gradient.ppo import ppo
from posttrain.recipes.changes import sampled_of, sampling_of, with_stage
from posttrain.recipes.tree import Recipe
from posttrain.settings.arithmetic import arithmetic

PARENT: Final = "ppo"
SETTING: Final = "arithmetic"
PAPER: Final = "arXiv:2409.06957"
ROWS: Final = (240,)
CHANGES: Final = ("rollout.n",)  # five rollouts per prompt, of which two are kept


def pf_ppo(recipe: Recipe | None = None) -> Recipe:
    """A change to PPO: five rollouts per prompt, of which two are kept."""
    recipe = ppo(recipe or arithmetic())
    stage = sampled_of(recipe)
    stage = replace(
        stage,
        rollout=Independent(n=5, sampling=sampling_of(stage)),
        filters={**stage.filters, "filtration": BestAndWorst(margin=None, min_rollouts=1)},
    )
    return with_stage(replace(recipe, name="pf_ppo"), stage)
