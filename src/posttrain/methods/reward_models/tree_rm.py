"""Tree reward model: preference pairs of responses that share a prefix, then PPO by the reward model of them.

Source: Qiu et al. 2024, "Reward Generalization in RLHF: A Topological Perspective", arXiv:2402.10184, of which a
detailed note was read. Each prompt has a complete tree of branching 2 and depth 3, whose leaves are whole responses;
pairs of the leaves are labelled, and an ordinary reward model is trained on them (`pairings/prefix_tree`). Nothing else
changes: `reward_model.selection.pairing.depth=1` is the chain, pairs of independent responses.

    posttrain run tree_rm tasks=mine.jsonl model=FOLDER    # columns: prompt, answer

The labels are the verifier's of the recipe; for those of a judge set `reward_model.selection.reward`. Pairs have the
numbers ``ancestor`` and ``suffix``, so their counts by depth, and what a labeller must read, are in the record.

Differs: branching, depth, length of segments and the number of pairs are not published: those here are ours. Labels are
of a rule, where the paper has GPT-4.

Measured here, exactly, on Gaussian rewards of 216 responses of three segments (5 seeds;
`docs/experiments/prefix_trees.py`): of the prior variance of a difference of rewards, 32 independent pairs leave 0.613
[0.597, 0.629] where all segments vary alike, 32 pairs of one tree 0.926 and of four trees 0.787 [0.768, 0.806]. The
chain leaves less in each of nine cases with equal pairs. With equal labelled segments it leaves less in eight of nine:
where late segments vary most and 24 are labelled, it leaves 0.977 [0.975, 0.978], and four trees 0.973 [0.972, 0.975].
The paper's gain, 65 % of wins after PPO, is not explained by what pairs tell about such rewards. One seed only, the
default setting: 259 pairs from 130 of 300 tasks, held-out accuracy 25.0 % before and 79.5 % at the end.
"""

from dataclasses import replace
from typing import Final

from posttrain.components.pairings.prefix_tree import PrefixTree
from posttrain.components.selections.paired import Paired
from posttrain.errors import UserError
from posttrain.methods.policy_gradient.ppo import ppo
from posttrain.recipes.changes import rl_of, sampling_of, with_stage
from posttrain.recipes.tree import Recipe
from posttrain.settings.few_reward_sums import few_reward_sums
from posttrain.stages.reward_model import RewardModelTraining

PARENT: Final = "ppo"
SETTING: Final = "few_reward_sums"
PAPER: Final = "arXiv:2402.10184"
ROWS: Final = (218,)


def tree_rm(recipe: Recipe | None = None) -> Recipe:
    """A change to PPO with a reward model: its pairs are leaves of trees."""
    recipe = ppo(recipe or few_reward_sums())
    stage = next((s for s in recipe.stages.values() if isinstance(s, RewardModelTraining)), None)
    verifier = recipe.evaluation.verifier
    if stage is None or verifier is None:
        raise UserError(
            f"recipe '{recipe.name}' has no stage reward_model with a verifier in its evaluation, by which pairs would "
            "be labelled; add them, or start from the setting few_reward_sums"
        )
    sampling = sampling_of(rl_of(recipe))
    pairs = Paired(pairing=PrefixTree(sampling=sampling), reward=verifier, n=1, max_tokens=sampling.max_tokens)
    return with_stage(replace(recipe, name="tree_rm"), replace(stage, selection=pairs))
