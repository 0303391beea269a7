"""RLPR: thoughts are paid for how likely they make the reference answer; nobody checks the answer that was given.

Source: Yu et al. 2025, arXiv:2506.18254, and its released script: 0.9 of the debiased mean probability of the reference
answer and 0.1 of the form, less 1 for repetition; groups that deviate less than half as much as usual are left out;
clip 0.2 and 0.27, no KL; 768 prompts of 8 attempts.

`reward.parts.probability.aggregate=product` is the probability of the whole answer (VeriFree), and
`reward.parts.probability.baseline=null` leaves the comparison with the first policy out.

Differs: the bundled model does not follow instructions, so that it first imitates the form. The release samples on
until a batch of kept groups is full; here a step learns from those of its groups that are kept. Sizes are for the
bundled model.

Measured here: against the product of the probabilities (25 steps of 8 tasks at learning rate 2e-4 after 60 updates of
imitation, 5 seeds): held-out accuracy 53.2 % against 58.8 %, -5.6 points [-11.9, +0.6], from 65.0 % after imitation:
at this rate both get worse (docs/experiments.md).
"""

from dataclasses import replace
from typing import Final

from posttrain.components.filters.moving_deviation import MovingDeviation
from posttrain.components.objectives.ppo_clip import PPOClip
from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.rewards.format import Format
from posttrain.components.rewards.match import Match
from posttrain.components.rewards.reference_probability import ReferenceProbability
from posttrain.components.rewards.repetition import Repetition
from posttrain.components.rewards.sum import Sum
from posttrain.components.rollouts.independent import Independent
from posttrain.components.tasks.tagged import Tagged
from posttrain.engines import Sampling
from posttrain.methods.policy_gradient.grpo import grpo
from posttrain.methods.sft_rl.sft import sft
from posttrain.models import Model
from posttrain.recipe.changes import rl_of, sft_of, with_models
from posttrain.recipe.tree import Recipe

ROWS: Final = (251,)


def rlpr(recipe: Recipe | None = None) -> Recipe:
    """A change to GRPO: the form is imitated first; the reward is the policy's own probability of the reference."""
    recipe = recipe or grpo()
    parts = {
        "probability": ReferenceProbability(),
        "form": Format(alone=False, finished=False),
        "repetition": Repetition(),
    }
    stage = replace(
        rl_of(recipe),
        steps=30,
        rollout=Independent(n=8, sampling=Sampling(max_tokens=96)),
        reward=Sum(parts=parts, weights={"probability": 0.9, "form": 0.1}),
        filters={"deviation": MovingDeviation()},
        objective=PPOClip(clip_high=0.27),
    )
    form = sft_of(sft())
    form = replace(form, epochs=2.0, learner=replace(form.learner, optimizer=AdamW(lr=3e-3)))
    recipe = with_models(recipe, {"reference": Model(source="role:policy")})
    return replace(
        recipe,
        name="rlpr",
        tasks=Tagged(tasks=recipe.tasks),
        stages={"sft": form, "rl": stage},
        evaluation=replace(recipe.evaluation, verifier=Match()),
    )
