"""Confucius3-Math: three stages of growing length; an entropy target, then hard tasks weighted; surplus groups reused.

Source: the technical report, arXiv:2506.18330, sections 4 to 6. All stages have dynamic sampling, whose surplus comes
first in the next step (Recent Sample Recovery), clips of 0.2 and 0.28, and rewards of +1 and -1 behind gates for the
format and for repetition. The first stage is GRPO with the term 0.001 |H - 0.55| (Targeted Entropy Regularization). The
second and the third weight groups by their mean reward instead of dividing by its standard deviation (Policy-Specific
Hardness Weighting), and sum the losses of tokens. Completions may have the setting's tokens, twice as many, and four
times as many (4K, 8K and 16K in the report).

    posttrain run confucius3 tasks=mine.jsonl model=FOLDER    # columns: prompt, answer

A completion needs the form ``<think>...</think><answer>...</answer>``; without a gate for it:
`reward.gate={repetition: repetition}`.

`CHANGES`: rewards are +1 and -1, behind gates.

Differs: the first stage has the setting's steps, the others half of them. Group size, clips and learning rate are not
in the report: the clips are those of DAPO, the others the setting's. A sum over tokens has its gradient clipped to norm
1. No model scores the steps of a solution.

Measured here: carried surplus against dropped (sums of two to five numbers, 30 updates, 5 seeds): 183,015 sampled
tokens against 202,076, 2.47 refills a step against 2.85, -0.37 [-0.64, -0.11]; accuracy +1.5 points [-2.7, +5.7], and
at equal 60,000 sampled tokens +2.2 [-0.1, +4.5]. Hardness weights against none (10 seeds): 57.6 % and 57.4 %, +0.2
points [-2.3, +2.7], a null. With a weight of 0.02, the target of the entropy, 0.55 or 0.02, changes nothing after 30
steps (0.028 nats for both, 0.029 without; 5 seeds): the rewards' own pull is far stronger (docs/experiments.md).
"""

from dataclasses import replace
from typing import Final

from posttrain.component.automatic import is_auto
from posttrain.components.advantages.hardness import Hardness
from posttrain.components.objectives.ppo_clip import PPOClip
from posttrain.components.penalties.target_entropy import TargetEntropy
from posttrain.components.reducers.constant import Constant
from posttrain.components.rewards import Reward
from posttrain.components.rewards.format import Format
from posttrain.components.rewards.gated import Gated
from posttrain.components.rewards.repetition import Repetition
from posttrain.methods.policy_gradient.grpo import grpo
from posttrain.methods.policy_gradient.topr import signed
from posttrain.recipes.changes import keep_verifier, rl_of, sampling_of, with_stage, with_stages_after
from posttrain.recipes.tree import Recipe
from posttrain.settings.tagged_sums import tagged_sums
from posttrain.stages.rl import RL
from posttrain.stages.rl.refill import Refill

PARENT: Final = "grpo"
SETTING: Final = "tagged_sums"
PAPER: Final = "arXiv:2506.18330"
ROWS: Final = (148,)
CHANGES: Final = ("reward",)


def confucius3(recipe: Recipe | None = None) -> Recipe:
    """A change to GRPO: three stages in place of one; gates, carried surplus, an entropy target, hardness weights."""
    recipe = keep_verifier(grpo(recipe or tagged_sums()))
    stage = rl_of(recipe)
    name = next(name for name, own in recipe.stages.items() if own is stage)
    stage = replace(
        stage,
        reward=gated(stage.reward),
        refill=Refill(surplus="carry"),
        objective=PPOClip(clip_low=0.2, clip_high=0.28),
    )
    later = replace(
        stage,
        advantage=Hardness(),
        reducer=Constant(length=1.0, average=False),
        steps=max(stage.steps // 2, 1),
    )
    first = replace(stage, penalties={**stage.penalties, "entropy": TargetEntropy()})
    recipe = with_stage(replace(recipe, name="confucius3"), first)
    longer = {f"{name}_{word}": lengthened(later, by) for word, by in (("double", 2), ("quadruple", 4))}
    return with_stages_after(recipe, longer, first)


def gated(reward: Reward) -> Reward:
    """The reward as +1 and -1, behind gates for the format and for repetition."""
    return Gated(gate={"form": Format(), "repetition": Repetition()}, reward=signed(reward), otherwise=-1.0)


def lengthened(stage: RL, by: int) -> RL:
    """The stage with room for longer completions; ``auto`` stays."""
    sampling = sampling_of(stage)
    if is_auto(sampling.max_tokens) or not hasattr(stage.rollout, "sampling"):
        return stage
    sampling = replace(sampling, max_tokens=sampling.max_tokens * by)
    return replace(stage, rollout=replace(stage.rollout, sampling=sampling))  # type: ignore[type-var]
