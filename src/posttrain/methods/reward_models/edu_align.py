"""EduAlign: a reward model of three dimensions of tutoring, in one pass, then GRPO by their mean.

Source: EduAlign, arXiv:2507.20335, of which only the abstract was read; the formulas are of this package. A reward
model learns labels of helpfulness, personalization and creativity, some of which are missing (`stages/heads`: three
outputs of one trunk, squared error over the labels that are there). It is frozen, and GRPO is rewarded by the weighted
mean of its scores (`rewards/heads`); the record has each dimension.

    posttrain run edu_align tasks=mine.jsonl    # columns: prompt, completion, helpfulness, personalization, creativity

``rl.reward.standardized=true`` standardizes each dimension within the rollouts of a prompt, so that the scale of a
label does not decide; ``rl.reward.weights`` weighs them. ``heads.loss=levels heads.levels=3 models.reward.outputs=9
rl.reward.levels=3`` learns levels in place of numbers.

Differs: unverified but for its aim: labels, losses, the way to one reward and all sizes are of this package. Pairs for
each dimension are left out. The length of completions is in the record; whether a head follows it is not.

Measured here: nothing yet, so that row 16 is not named in `ROWS`.
"""

from dataclasses import replace
from typing import Final

from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.reducers.sequences import Sequences
from posttrain.components.rewards.heads import Heads
from posttrain.methods.policy_gradient.grpo import grpo
from posttrain.models import Model
from posttrain.recipes.changes import keep_verifier, rl_of, with_models, with_stage, with_stages_before
from posttrain.recipes.tree import Recipe
from posttrain.settings.graded_replies import graded_replies
from posttrain.stages.heads import HeadsTraining
from posttrain.training.settings import Learning

PARENT: Final = "grpo"
SETTING: Final = "graded_replies"
PAPER: Final = "arXiv:2507.20335"
ROWS: Final = ()


def edu_align(recipe: Recipe | None = None) -> Recipe:
    """A change to GRPO: a stage that trains three heads on labels, whose mean is the reward."""
    recipe = keep_verifier(grpo(recipe or graded_replies()))
    reward = Heads()
    learning = HeadsTraining(
        reducer=Sequences(),
        labels=tuple(reward.weights),
        epochs=2.0,
        max_steps=60,
        learner=Learning(optimizer=AdamW(lr=2e-3)),
    )
    model = Model(source="role:policy", head="reward", trained=True, outputs=len(reward.weights))
    recipe = with_models(replace(recipe, name="edu_align"), {"reward": model})
    changed = replace(rl_of(recipe), reward=reward)
    return with_stages_before(with_stage(recipe, changed), {"heads": learning}, changed)
