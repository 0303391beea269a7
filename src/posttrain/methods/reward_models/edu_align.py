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

Measured here (``python docs/experiments/three_heads.py --seeds 5``, linear heads and a tabular policy, 400 texts, 30 %
of the labels missing): the smallest correlation of a head with its own number is .995 [.993, .997], the largest with
another .062 [.022, .101]. Under equal weights all three numbers reach 1.99 of 2 in 200 steps; under the first alone it
reaches 1.99 and the others end anywhere. A label ten times larger comes first (1.90 after 25 steps, the others 1.42
and 1.39, 1.78 and 1.77 without it) and does not stop the others, which reach 1.99 as well. Standardized within groups
the scale has no effect, but a number that hardly varies any more is noise as loud as the others, and in four of five
seeds one of the three is lost again. The default run, one seed: replies with all three words are 33 % of 100 held-out
ones before the reinforcement, and 72 % after. Where the labels are the plain numbers of the words, the policy repeats
them without an end, and the share falls to 11 %: heads of labels that only grow reward more than the data ever had.
"Let's solve this problem step by step." outranks 7 of 16 demonstrations, which are of mixed quality: the setting's
audit only measures.
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
ROWS: Final = (16,)


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
