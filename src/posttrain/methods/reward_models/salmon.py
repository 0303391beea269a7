"""SALMON: a reward model that follows principles, from comparisons by the policy itself, then PPO by drawn principles.

Source: Sun et al. 2023, arXiv:2310.05910, and its release (IBM/SALMON at 7392a56). The policy after imitation responds
twice to each prompt and compares both by one principle at a time, in both orders (`selections/principle_pairs`); a
reward model learns from pairs below principles, some of them negated, by the most decisive one; PPO is rewarded by its
score below up to three drawn principles and fixed lines (`rewards/principled_model`), with -6 for a missing end, a
bonus of length, and a penalty of tokens that became likelier (`penalties/kl_above`). gamma and lambda are 1; the
critic begins as the reward model. Principles may be edited without new labels.

    posttrain run salmon tasks=prompts.jsonl model=FOLDER    # column: prompt

``principles.selection.principles={brief: {text: .., negated: .., weight: 3}}`` are your own, and so for ``rl.reward``.

Differs: the pre-training of the reward model on public pairs, the rules for texts that mention an AI or are in the
wrong language, and principles for red-team prompts are data of the user's (`rl.reward.boosts`). All weights are
trained, where the release has adapters of a 70B model.

Measured here (``python docs/experiments/principles.py --seeds 5``, texts of three numbers, a judge with noise and a
preference for the first, a model that reads differences and principles): of new pairs that differ in a principle's
trait all are in order by it and all are reversed by its negation, over the variance and over the std; where the scores
of one trait are five times larger, .993 [.979, 1] over the variance and 1 over the std. A model that reads no
principles has .422 [.306, .537] in order and reverses none. A policy that learned kindness by exact gradients has a
length of .65 [.54, .75] from -1 to 1; 50 steps after "not long" is added it is -.36 [-.42, -.31], and the kindness .82
[.82, .83] from .85. The default run, one seed: polite and short are 45 % of 100 held-out replies after the imitation,
and all of them after 20 steps by a reward model of its own comparisons. A text without content, ".", outranks 10 of 16
demonstrations, which are of both kinds: the setting's audit only measures.
"""

from dataclasses import replace
from typing import Final

from posttrain.components.advantages.gae import GAE
from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.penalties.kl_above import KLAbove
from posttrain.components.reducers.sequences import Sequences
from posttrain.components.rewards.principled_model import PrincipledModel
from posttrain.components.selections.principle_pairs import PrinciplePairs
from posttrain.datasets.principles import REQUEST, Principle
from posttrain.methods.policy_gradient.ppo import ppo
from posttrain.models import Model
from posttrain.recipes.changes import keep_verifier, rl_of, sampling_of, with_stage, with_stages_before
from posttrain.recipes.tree import Recipe
from posttrain.settings.principled_replies import principled_replies
from posttrain.stages.reward_model import RewardModelTraining
from posttrain.training.settings import Learning

PARENT: Final = "ppo"
SETTING: Final = "principled_replies"
PAPER: Final = "arXiv:2310.05910"
ROWS: Final = (181,)

PRINCIPLES: Final = {
    "polite": Principle(text="polite", negated="rude"),
    "short": Principle(text="short", negated="long"),
}


def salmon(recipe: Recipe | None = None) -> Recipe:
    """A change to PPO: a reward model that reads principles, of own comparisons, and principles drawn for rollouts."""
    recipe = keep_verifier(ppo(recipe or principled_replies()))
    stage = rl_of(recipe)
    pairs = RewardModelTraining(
        reducer=Sequences(),
        max_steps=60,
        request=REQUEST,
        learner=Learning(optimizer=AdamW(lr=1e-3)),
        selection=PrinciplePairs(principles=PRINCIPLES, sampling=sampling_of(stage), first=400),
        tasks=stage.tasks,
    )
    penalties = {name: penalty for name, penalty in stage.penalties.items() if name != "kl"}
    changed = replace(
        stage,
        reward=PrincipledModel(principles=PRINCIPLES),
        advantage=GAE(lam=1.0),
        penalties={**penalties, "kl_above": KLAbove()},
    )
    model = Model(source="role:policy", head="reward", trained=True)
    recipe = with_stage(replace(recipe, name="salmon"), changed)
    models = {**recipe.models, "reward": model}
    if models["critic"].source == "role:policy":
        models["critic"] = replace(models["critic"], source="role:reward")
    return with_stages_before(replace(recipe, models=models), {"principles": pairs}, changed)
