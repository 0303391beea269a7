"""RLAD: one model writes hints, another answers with them, and each is trained by how right the answers are.

Source: Qu et al. 2025, arXiv:2510.02263, whose equations are read in a detailed note; no code could be had. A hint's
reward is the mean correctness of the solver's answers with it, the solver being fixed meanwhile; a hint that alone,
without the problem, leads to the answer in any of 16 tries has the reward 0. The solver's reward is correctness with a
hint and 0 without one, so that on bare prompts only the KL to the reference acts (`rollouts/abstracted`). The two are
trained in alternating phases: the writer by a preference loss on pairs of hints and the likelihood of the better one
(RPO), the solver by DAPO with a KL.

    posttrain run rlad tasks=mine.jsonl model=FOLDER    # columns: prompt, answer

``rollout.hints.request``, ``shown`` and ``alone`` are the prompts. Hints are better warm-started, by a stage ``sft``
before, on summaries of several solutions by a stronger model. Problems that the solver never solves in five tries are
left out; ``rl.selection.levels`` chooses others, such as easy ones first and harder ones in a further stage.

Differs: the numbers of hints (4) and answers (8), the share of bare prompts (1/4), the weight of the KL (0.3) and that
of the likelihood (0.2) are ours. Hints are pairs in the step in which they are written; the paper's writer learns
offline from a store of them, first by imitation of those that help. The reference is the solver when the stage begins,
for both. Easy and medium problems are in one stage, not one after the other.

Not measured yet: no row is claimed.
"""

from dataclasses import replace
from typing import Final

from posttrain.components.objectives.pairwise import Pairwise
from posttrain.components.objectives.ppo_clip import PPOClip
from posttrain.components.penalties.kl import KL
from posttrain.components.preferences.dpo import DPO
from posttrain.components.preferences.rpo import RPO
from posttrain.components.rollouts.abstracted import Abstracted, Hints
from posttrain.components.selections.by_level import ByLevel
from posttrain.methods.policy_gradient.grpo import grpo
from posttrain.models import Model
from posttrain.recipes.changes import every_group, rl_of, rollouts_of, sampled_of, sampling_of, with_models, with_stage
from posttrain.recipes.tree import Recipe
from posttrain.settings.procedures import procedures
from posttrain.stages.rl.roles import RoleLearning

PARENT: Final = "grpo"
SETTING: Final = "procedures"
PAPER: Final = "arXiv:2510.02263"
ROWS: Final = ()
PREFERENCE: Final = RPO(loss=DPO(beta=0.1, reference="old"), eta=0.2, length="mean", times_beta=False)


def rlad(recipe: Recipe | None = None) -> Recipe:
    """A change to GRPO: hints by a second model, which learns by preferences, and no reward without a hint."""
    recipe = recipe or procedures()
    sampled_of(recipe)
    recipe = grpo(recipe)
    stage = rl_of(recipe)
    sampling = sampling_of(stage)
    rollout = Abstracted(n=rollouts_of(stage), hints=Hints(sampling=sampling), sampling=sampling)
    stage = replace(
        stage,
        rollout=rollout,
        selection=ByLevel(reward=stage.reward, levels=(1, 2, 3, 4, 5), max_tokens=sampling.max_tokens),
        filters=every_group(stage),
        objective=PPOClip(clip_low=0.2, clip_high=0.28),
        penalties={**stage.penalties, "kl": KL(coefficient=0.3)},
        by_role={"writer": RoleLearning(objective=Pairwise(loss=PREFERENCE))},
    )
    roles = {"writer": Model(source="role:policy", trained=True), "reference": Model(source="role:policy")}
    return with_stage(with_models(replace(recipe, name="rlad"), roles), stage)
