"""TreePO: GRPO with tree-structured sampling of segments, and advantages from the subgroup at each branching.

Source: Li et al. 2025, arXiv:2508.17445, and the released run: 16 leaves, uniform binary branching, subgroup advantages
averaged along the path and whitened over the tokens of the batch, clip 0.2 and 0.28, dual clip at 10, no KL, groups
that are all correct or all incorrect dropped and others sampled in their place, in at most 10 rounds, a penalty on
answers that reach the last fourteenth of their tokens.

Differs: as many leaves as the setting has rollouts, and segments of 8 tokens, for the bundled model. A step that is not
full after the last round trains on fewer groups; theirs stops.

Measured here: without refills (`refill=null`), against GRPO (20 steps of 16 x 8, 5 seeds): 22 % fewer tokens sampled
for as many rollouts (42,600 against 54,900), held-out accuracy 78.4 % against 82.4 %, -4.0 points [-9.4, +1.4]: no
difference that five seeds can show (docs/experiments.md). No answer was long enough to be penalized.
"""

from dataclasses import replace
from typing import Final

from posttrain.components.advantages.tree_mean import TreeMean
from posttrain.components.objectives.ppo_clip import PPOClip
from posttrain.components.rollouts.tree import Tree
from posttrain.recipes.changes import penalize_overlong, rollouts_of, sampled_of, sampling_of, with_stage
from posttrain.recipes.tree import Recipe
from posttrain.settings.arithmetic import arithmetic
from posttrain.stages.rl.refill import Refill

PARENT: Final = "grpo"
SETTING: Final = "arithmetic"
PAPER: Final = "arXiv:2508.17445"
ROWS: Final = (125,)
CHANGES: Final = ("reward",)


def treepo(recipe: Recipe | None = None) -> Recipe:
    """A change to GRPO: a tree of rollouts, advantages by branching, and refilled steps."""
    recipe = recipe or arithmetic()
    stage = sampled_of(recipe)
    stage = replace(
        stage,
        rollout=Tree(n=rollouts_of(stage), segment=8, sampling=sampling_of(stage)),
        advantage=TreeMean(),
        objective=PPOClip(clip_high=0.28, dual_clip=10.0),
        refill=Refill(rounds=9),
    )
    return penalize_overlong(with_stage(replace(recipe, name="treepo"), stage), share=1 / 14)
