"""NFT: supervised learning on correct and incorrect rollouts of the policy, through an implicit negative policy.

Source: Chen et al. 2025, arXiv:2505.18116, and its released code: weight 1 - q of a prompt with a share q of correct
rollouts, token ratios without an upper bound, sum over tokens / 1000, 16 updates per batch, groups of equal rewards
dropped and others sampled in their place in at most 10 rounds, warm-up of 10 updates, no KL and no entropy bonus.
`objective.negative=0` is RFT, imitation of correct rollouts only; `objective.prompt_weight=odds` is the weight that
matches GRPO.

`CHANGES`: many updates per batch are the paper's; on-policy the objective is that of Dr. GRPO.

Differs: the release samples three times as many tasks at first as it trains on (`prompts=96 refill.prompts=32`); here
both numbers are the setting's. The paper's rounds are of 512 tasks x 16, at a rate of 1e-6 and a weight decay of 0.1,
so that its sum over tokens is larger than here.

Measured here: six rounds of 32 x 8 rollouts with 16 updates each, all with refills (5 seeds): held-out accuracy 81.2 %,
GRPO 82.4 %, -1.2 points [-8.3, +5.9]; Dr. GRPO 83.4 %, RFT 79.6 %; mean training reward 0.539 against GRPO's 0.531,
+0.008 [-0.002, +0.018]. None of these differences, that to RFT included, is one that five seeds can show. Entropy is
lower by 0.005 nats [0.003, 0.008]. One further round of sampling filled every step (docs/experiments.md).
"""

from dataclasses import replace
from typing import Final

from posttrain.components.objectives.nft import NFT
from posttrain.components.reducers.constant import Constant
from posttrain.recipes.changes import rl_of, several_updates, with_stage
from posttrain.recipes.tree import Recipe
from posttrain.settings.rounds import rounds
from posttrain.stages.rl.refill import Refill

PARENT: Final = "grpo"
SETTING: Final = "rounds"
PAPER: Final = "arXiv:2505.18116"
ROWS: Final = (199,)
CHANGES: Final = ("learner.minibatches",)


def nft(recipe: Recipe | None = None) -> Recipe:
    """A change to GRPO: a supervised loss on correct and incorrect rollouts, 16 updates, refilled steps."""
    recipe = recipe or rounds()
    stage = rl_of(recipe)
    stage = replace(
        stage,
        refill=Refill(rounds=9),
        objective=NFT(),
        reducer=Constant(length=1000.0, average=False),
        learner=several_updates(stage.learner, minibatches=16),
    )
    return with_stage(replace(recipe, name="nft"), stage)
