"""DeepVideo-R1: Reg-GRPO on tasks whose difficulty is adjusted, hard ones by hints and easy ones by noise on images.

Source: Park et al. 2025, arXiv:2506.07464, sections 3.2 and 3.3: the regression of `reg_grpo`, and a difficulty-aware
augmentation. The mean reward of a task's rollouts is compared with the mean of recent groups: a harder task is asked
with a part of the model's own best trace, written with the answer shown; on the images of an easier one there is noise.
Hint and noise grow with the difference (`curricula/paced`, `rollouts/adjusted`).

    posttrain run deepvideo_r1 tasks=mine.jsonl model=FOLDER rollout.request='...{question}...{answer}'
    # columns: prompt, answer, image (optional)

Differs: sums in place of videos by default, for which there are hints only; `setting=shapes` has images. Four rollouts
of each task are sampled beforehand to know its difficulty. The factors of hint and noise are not in the paper.

Measured here: five seeds, 50 steps: 47.7 % of 200 held-out sums against 49.4 % with the loss alone, -1.7 points [-6.2,
+2.8], at 1.7 times the sampled tokens; after 20 steps +0.3 points [-1.9, +2.5]. No gain from hints is seen on sums
(docs/experiments.md).
"""

from dataclasses import replace
from typing import Final

from posttrain.components.curricula.paced import Paced
from posttrain.components.rollouts.adjusted import Adjusted
from posttrain.methods.policy_gradient.reg_grpo import reg_grpo
from posttrain.recipes.changes import rollouts_of, sampled_of, sampling_of, with_stage
from posttrain.recipes.tree import Recipe
from posttrain.settings.explained_sums import explained_sums

PARENT: Final = "reg_grpo"
SETTING: Final = "explained_sums"
PAPER: Final = "arXiv:2506.07464"
ROWS: Final = (34,)

REQUEST: Final = "#### {answer}\n{question}"
"""The prompt of the warm-up in the setting `explained_sums`: the answer, then the question as usual."""


def deepvideo_r1(recipe: Recipe | None = None) -> Recipe:
    """A change to Reg-GRPO: tasks know their difficulty, and are asked with a hint or with noise."""
    recipe = reg_grpo(recipe or explained_sums())
    stage = sampled_of(recipe)
    rollout = Adjusted(n=rollouts_of(stage), request=REQUEST, sampling=sampling_of(stage))
    return with_stage(replace(recipe, name="deepvideo_r1"), replace(stage, curriculum=Paced(), rollout=rollout))
