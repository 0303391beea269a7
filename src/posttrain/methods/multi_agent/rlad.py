"""RLAD: one model writes hints, another answers with them, and each is trained by how right the answers are.

Source: Qu et al. 2025, arXiv:2510.02263, whose equations are read in a detailed note; no code could be had. A hint's
reward is the mean correctness of the solver's answers with it, the solver being fixed meanwhile; a hint that alone,
without the problem, leads to the answer in any of 16 tries has the reward 0. The solver's reward is correctness with a
hint and 0 without one, so that on bare prompts only the KL to the reference acts (`rollouts/abstracted`). The two are
trained in alternating phases: the writer by a preference loss on pairs of hints and the likelihood of the better one
(RPO), the solver by DAPO with a KL.

    posttrain run rlad tasks=mine.jsonl model=FOLDER    # columns: prompt, answer

``rollout.hints.request``, ``shown`` and ``alone`` are the prompts. Hints are better warm-started, by a stage ``sft``
before, on summaries of several solutions by a stronger model. Problems that the solver never solves in five tries
without a hint are left out, and the others come from easy to medium (``rl.selection.levels``, ``rl.curriculum``); after
the last it begins again with the first.

Differs: the numbers of hints (4) and answers (8), the share of bare prompts (1/4), the weight of the KL (0.3), beta of
the pairs (1), the least difference of their rewards (0.25), the weight of the likelihood (0.2) and the writer's higher
learning rate are ours. Hints are pairs in the step in which they are written; the paper's writer learns offline from a
store of them, first by imitation of those that help. The reference is the solver when the stage begins, for both.
Difficulty is measured once, when the stage begins; the paper's bounds of easy and medium are not known.

Measured here with tables in place of models (5 seeds, beta 0.1, all pairs): hints become right, 95 % [95, 96] of 25 %
before, and 93 % [93, 94] of the answers with them, of 16 %. A right hint makes 55 points [52, 58] more answers right
than a random one does; with rewards for bare prompts 19 [15, 23], with no bare prompts 31 [25, 37], so that the solver
follows hints less (docs/experiments.md).

The default run, one seed: of 80 held-out problems 27.5 % are answered rightly with the writer's hints before and 92.5 %
[84.6, 96.5] after, greedily; of sampled answers 24.0 % and 59.3 %. 86 % of the sampled hints are right, of 25 % before.
Without a hint 21.1 % and 15.9 % of the sampled answers are right: the solver gains by hints alone. With the writer at
twenty times the solver's learning rate, beta 0.1 and all pairs, 34 % of the hints were right after 100 smaller steps.
"""

from dataclasses import replace
from typing import Any, Final

from posttrain.components.curricula.in_order import InOrder
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
from posttrain.training.settings import Learning

PARENT: Final = "grpo"
SETTING: Final = "procedures"
PAPER: Final = "arXiv:2510.02263"
ROWS: Final = (107,)
LEVELS: Final = (1, 2, 3, 4, 5)
"""Easy to medium; level 6, which was never solved, is left out."""
WRITER_RATE: Final = 5.0
"""The writer's learning rate as a multiple of the solver's."""
GAP: Final = 0.25
"""Hints whose rewards differ by no more are no pair: such differences are those of eight answers by chance."""
PREFERENCE: Final = RPO(loss=DPO(beta=1.0, reference="old"), eta=0.2, length="mean", times_beta=False)


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
        selection=ByLevel(reward=stage.reward, levels=LEVELS, max_tokens=sampling.max_tokens, sort=True),
        curriculum=InOrder(),
        filters=every_group(stage),
        objective=PPOClip(clip_low=0.2, clip_high=0.28),
        penalties={**stage.penalties, "kl": KL(coefficient=0.3)},
        by_role={"writer": RoleLearning(objective=Pairwise(loss=PREFERENCE, gap=GAP), learner=_faster(stage.learner))},
    )
    roles = {"writer": Model(source="role:policy", trained=True), "reference": Model(source="role:policy")}
    return with_stage(with_models(replace(recipe, name="rlad"), roles), stage)


def _faster(learner: Learning) -> Learning:
    """The learner at the writer's learning rate."""
    optimizer: Any = learner.optimizer
    if not isinstance(getattr(optimizer, "lr", None), float):
        return learner
    return replace(learner, optimizer=replace(optimizer, lr=WRITER_RATE * optimizer.lr))
