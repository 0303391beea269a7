"""RLT: a teacher who knows the solution learns to write explanations from which a frozen student would find it.

Source: Cetin et al. 2025 (Reinforcement Learning Teachers of Test Time Scaling), arXiv:2506.08388, and its release
(SakanaAI/RLT at 86a3f5c). The reward of an explanation is how likely the solution is to the student after it, less how
much likelier the explanation is to the teacher, who has read the solution, than to the student, who has not
(`rewards/teaching`). GRPO, one update a step, KL 0.04 to a reference that is moved to 0.9 of the policy every 32 steps.

    posttrain run rlt tasks.tasks=mine.jsonl model=FOLDER models.student.source=FOLDER tasks.closing="</think>"
        reward.closing="</think>"
    # columns: prompt, answer, completion (an explanation that ends with </think>, to imitate)

The setting's ``sft`` stage is the paper's warm-up in the form of explanations, derivations and bare solutions in equal
shares, so that it is left to the reward which of them to write.

Differs: the recipe ends with the teacher. The paper's last part, a student of any size who imitates the teacher's
explanations with the solutions, is a run of `sft` on a file of both (`docs/experiments/teachers.py` writes one). Here
teacher and student begin as the same small model, not as an instructed and a reasoning one; groups have 8 explanations
of 64 tokens, not 64 of 16,384; the batch has 64, not 1,024; and in the setting's 20 steps the reference is not moved.

Measured here (5 seeds, docs/experiments.md), on 320 other sums: 21.4 % [19.4, 23.5] of the explanations derive the
solution after imitation, 70.1 % [65.6, 74.7] after 20 steps, and 65.1 % [58.8, 71.4] with the part of the solution
alone, 5.0 points [1.7, 8.3] fewer; bare solutions go from 52.0 % to 3.3 % and 5.5 %. In one run of the default,
held-out derivations rise from 22 % to 79 %. A fresh student who imitates the explanations rises from 36.6 % of the sums
to 60.2 % [50.0, 70.4] with those of imitation, and to 75.6 % [70.8, 80.4] with those of the whole reward, +15.4 points
[1.6, 29.2]. The part of the solution alone teaches as much, 76.0 %, a difference of -0.4 points [-3.2, +2.4]: this
student finds the solution no better after a bare one (-6.3 nats a token), so that both parts prefer derivations.

Derivations have a reward of 0.22 [0.13, 0.32], an empty explanation -4.17, shuffled characters -22.42, reversed steps
-26.30, and a bare solution -41.07 [-42.85, -39.30], nearly all of it by what it betrays. That shuffled text is above
none is not so here: the student takes its last number for the solution.
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
ROWS: Final = (313,)


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
