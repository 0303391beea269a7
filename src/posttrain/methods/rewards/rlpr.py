"""RLPR: RL without a verifier, rewarded by the policy's own probability of the reference answer.

Source: Yu et al. 2025, arXiv:2506.18254, and its released script: 0.9 of the debiased mean probability of the reference
answer and 0.1 of the format, minus 1 for repetition; groups with a reward std below half of its moving average are
dropped, and others sampled until the step is full; clip 0.2 and 0.27, no KL; 768 prompts of 8 rollouts.

`reward.parts.probability.aggregate=product` is the probability of the whole answer (VeriFree), and
`reward.parts.probability.baseline=null` leaves out the debiasing, the comparison with the initial policy.

    posttrain run rlpr tasks=mine.jsonl model=FOLDER
    # columns: prompt, answer, completion (to imitate: <think>...</think><answer>...</answer>)

If held-out answers are scored by the setting's reward, they still are.

Differs: sampling again has an end, or a step whose filter lets nothing pass would never be over: one that is not full
after 100 further rounds trains on fewer groups, and with `refill.when_spent=stop` the run stops with the reasons.

Measured here: without refills (`refill=null`), against the product of the probabilities (25 steps of 8 tasks at
learning rate 2e-4 after 60 updates of SFT, 5 seeds): held-out accuracy 53.2 % against 58.8 %, -5.6 points [-11.9,
+0.6], from 65.0 % after SFT: at this learning rate both get worse (docs/experiments.md).
"""

from dataclasses import replace
from typing import Final

from posttrain.components.filters.moving_std import MovingStd
from posttrain.components.objectives.ppo_clip import PPOClip
from posttrain.components.rewards.format import Format
from posttrain.components.rewards.reference_probability import ReferenceProbability
from posttrain.components.rewards.repetition import Repetition
from posttrain.components.rewards.sum import Sum
from posttrain.methods.policy_gradient.grpo import with_rl
from posttrain.models import Model
from posttrain.recipes.changes import every_group, keep_verifier, rl_of, with_models, with_stage
from posttrain.recipes.tree import Recipe
from posttrain.settings.tagged_sums import tagged_sums
from posttrain.stages.rl.refill import Refill

PARENT: Final = "grpo"
SETTING: Final = "tagged_sums"
PAPER: Final = "arXiv:2506.18254"
ROWS: Final = (251,)


def rlpr(recipe: Recipe | None = None) -> Recipe:
    """A change to GRPO: the reward is the policy's own probability of the reference answer, without a verifier."""
    recipe = keep_verifier(with_rl(recipe or tagged_sums()))
    parts = {
        "probability": ReferenceProbability(),
        "form": Format(alone=False, finished=False),
        "repetition": Repetition(),
    }
    stage = rl_of(recipe)
    stage = replace(
        stage,
        reward=Sum(parts=parts, weights={"probability": 0.9, "form": 0.1}),
        filters={**every_group(stage), "std": MovingStd()},
        refill=Refill(rounds=100),
        objective=PPOClip(clip_high=0.27),
    )
    recipe = with_models(replace(recipe, name="rlpr"), {"reference": Model(source="role:policy")})
    return with_stage(recipe, stage)
