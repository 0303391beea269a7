"""RLT: a teacher who knows the solution learns to write explanations from which a frozen student would find it.

Source: Cetin et al. 2025 (Reinforcement Learning Teachers of Test Time Scaling), arXiv:2506.08388, and its release
(SakanaAI/RLT at 86a3f5c). The reward of an explanation is how likely the solution is to the student after it, less how
much likelier the explanation is to the teacher, who has read the solution, than to the student, who has not
(`rewards/teaching`). GRPO, one update a step, KL 0.04 to a reference that is moved to 0.9 of the policy every 32 steps.

    posttrain run rlt tasks.tasks=mine.jsonl model=FOLDER models.student.source=FOLDER tasks.closing="</think>"
        reward.closing="</think>"
    # columns: prompt, answer, completion (an explanation that ends with </think>, to imitate)

The setting's ``sft`` stage is the paper's warm-up in the form of explanations; it has to leave most of them right.

Differs: the recipe ends with the teacher. The paper's last part, a student of any size who imitates the teacher's
explanations with the solutions, is a run of `sft` on a file of both (`docs/experiments/teachers.py` writes one). Here
teacher and student begin as the same small model, not as an instructed and a reasoning one; groups have 8 explanations
of 64 tokens, not 64 of 16,384; the batch has 64, not 1,024; and in the setting's 20 steps the reference is not moved.

Measured here (5 seeds, docs/experiments.md): derivations have a reward of 0.18 [0.13, 0.22], an empty explanation -4.30
[-4.35, -4.25], shuffled characters -16.29 [-17.04, -15.53]. The default run changes little: right explanations of
held-out sums go from 77.2 % to 76.4 %, -0.8 points [-2.4, +0.8], and its reward by +0.64 [-1.47, +2.76]. After a
warm-up of 20 updates, which leaves most explanations wrong, 30 steps raise the reward on other sums in every seed, by
3.89 [3.00, 4.79], 0.15 [-0.71, +1.01] more than with the part of the solution alone; but explanations get shorter, and
fewer are right (17.4 %, then 6.6 %, -10.8 points [-20.9, -0.7]): a wrong one misleads the student more than none. A
fresh student who imitates those gets worse, by whichever teacher (22.6 % before; 14.5 % without RL, 14.2 % with the
part of the solution, 13.9 % with the whole reward), and copies of the solution are too rare to show what the maximum
does. Students of teachers after the longer warm-up were not measured, so that row 313 is not named in `ROWS`.
"""

from dataclasses import replace
from typing import Final

from posttrain.components.advantages.group_mean import GroupMean
from posttrain.components.hooks.ema import EMA
from posttrain.components.penalties.kl import KL
from posttrain.components.reducers.sequences import Sequences
from posttrain.components.rewards.teaching import Teaching
from posttrain.methods.policy_gradient.grpo import grpo
from posttrain.models import Model
from posttrain.recipes.changes import every_group, keep_verifier, rl_of, with_models, with_stage
from posttrain.recipes.tree import Recipe
from posttrain.settings.taught_sums import taught_sums

PARENT: Final = "grpo"
SETTING: Final = "taught_sums"
PAPER: Final = "arXiv:2506.08388"
ROWS: Final = ()


def rlt(recipe: Recipe | None = None) -> Recipe:
    """A change to GRPO: a student's reward for explanations, and a reference that follows the policy."""
    recipe = grpo(recipe or taught_sums())
    stage = rl_of(recipe)
    if not isinstance(stage.reward, Teaching):
        recipe = keep_verifier(recipe)
        stage = replace(stage, reward=Teaching())
    stage = replace(
        stage,
        filters=every_group(stage),
        advantage=GroupMean(epsilon=1e-4),
        reducer=Sequences(),
        penalties={**stage.penalties, "kl": KL()},
        hooks={**stage.hooks, "reference": EMA(decay=0.1, every=32)},
    )
    first = Model(source="role:policy")
    roles = {"reference": first, "student": recipe.models.get("student", first)}
    return with_stage(with_models(replace(recipe, name="rlt"), roles), stage)
