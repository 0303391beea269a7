"""DR-IRL: a reward model for each kind of harm, from demonstrated refusals by inverse RL, then GRPO with scaled credit.

Source: DR-IRL, arXiv:2503.18991; the abstract and secondary text with its equations were read, and no code. One reward
model per category learns to put refusals above what the policy writes, in alternation with the policy, which learns
from it under a KL (`stages/inverse_rl`). Then GRPO-S: the reward of the prompt's own category, and advantages scaled by
how unlike the demonstration a response is and by how well the prompt is met (`advantages/dynamic_scaling`). Each
category has as many tasks in every step of inverse RL, however rare it is.

    posttrain run dr_irl tasks=mine.jsonl     # columns: prompt, completion (a refusal), domain (a category)

Categories are those of the default setting (`tasks/guarded_requests`); for others name them in `irl.by_domain`, in
`reward.of.parts`, and a model for each. Held-out safe requests show how many are refused wrongly, apart from the
refusals of harmful ones: `accuracy_by_domain`, ``safe``.

`CHANGES`: the reward is a model.

Differs: refusals are given, and short; the paper has them written from Chain-of-Draft templates. Two rounds of
alternation, each a stage. tau, the group size, beta and the learning rates are not in the text.

Measured here, five seeds: mean accuracy of the seven categories 57.4 % after the warm-up, 66.0 % at the end, and 76.2 %
with the advantages of GRPO in place of scaled ones (`rl.advantage=group_mean`), which is 10.2 points more [2.0, 18.4]
at the same step size. Over-refusal: 76.6 % of the safe requests are fulfilled after the warm-up, 3.9 % at the end, and
6.1 % with GRPO's advantages, as no safe request is trained on (docs/experiments.md). In one seed alpha is 0.85 to 1.18
in the means of steps, and the sum of scaled advantages in a group 0.32 in the mean, where GRPO's is 0. No text without
content outranks one of 16 refusals in the default run, but at step 10 of a stage the policy's own "No: irsult"
outranks 2 of 14: the setting's audit only measures.
"""

from dataclasses import replace
from typing import Final

from posttrain.components.advantages.dynamic_scaling import DynamicScaling
from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.penalties.kl import KL
from posttrain.components.reducers.sequences import Sequences
from posttrain.components.rewards.reward_model import RewardModel
from posttrain.components.rewards.routed import Routed
from posttrain.components.rewards.shadow import Shadow
from posttrain.components.rollouts.independent import Independent
from posttrain.components.tasks.guarded_requests import HARMS
from posttrain.methods.policy_gradient.grpo import grpo
from posttrain.models import Model
from posttrain.recipes.changes import keep_verifier, rl_of, sampling_of, with_models, with_stage, with_stages_before
from posttrain.recipes.tree import Recipe
from posttrain.settings.guarded_requests import guarded_requests
from posttrain.stages.inverse_rl import InverseRL
from posttrain.training.settings import Learning

PARENT: Final = "grpo"
SETTING: Final = "guarded_requests"
PAPER: Final = "arXiv:2503.18991"
ROWS: Final = (207,)
CHANGES: Final = ("reward",)


def dr_irl(recipe: Recipe | None = None) -> Recipe:
    """A change to GRPO: reward models by category from inverse RL, scaled advantages, a KL."""
    recipe = keep_verifier(grpo(recipe or guarded_requests()))
    stage = rl_of(recipe)
    roles = {category: f"reward_{category}" for category in HARMS}
    routed = Routed(parts={category: RewardModel(role=role) for category, role in roles.items()})
    penalties = {**stage.penalties, "kl": KL(coefficient=0.04)}
    rewards = InverseRL(
        by_domain=roles,
        rollout=Independent(n=1, sampling=sampling_of(stage)),
        reducer=Sequences(),
        learner=Learning(optimizer=AdamW(lr=1e-3)),
    )
    policy = replace(stage, steps=max(stage.steps // 3, 1), reward=routed, penalties=penalties)
    changed = replace(
        stage,
        reward=Shadow(of=routed),
        advantage=DynamicScaling(advantage=stage.advantage),
        penalties=penalties,
    )
    recipe = with_models(recipe, {"reference": Model(source="role:policy")})
    recipe = with_models(recipe, {r: Model(source="role:policy", head="reward", trained=True) for r in roles.values()})
    recipe = with_stage(replace(recipe, name="dr_irl"), changed)
    return with_stages_before(recipe, {"irl": rewards, "policy_rl": policy, "irl_again": rewards}, changed)
