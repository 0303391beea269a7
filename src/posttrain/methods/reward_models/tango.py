"""Tango: alternating RL of a generator and of a generative verifier that scores its steps.

Source: Zha et al. 2025, arXiv:2505.15034: the generator is rewarded for its answers and for the verifier's verdicts on
its steps, whose weight decays. The verifier is rewarded for its final verdict, with advantages balanced between correct
and incorrect solutions. There are three updates of the generator per update of the verifier, after 40 updates of the
verifier alone.

    posttrain run tango tasks=mine.jsonl model=FOLDER    # columns: prompt, answer

Where the setting has no verifier among its models, the verifier starts as a copy of the policy.

Differs: no code was released. Start and rate of the decay, the moving average and the weight of the format reward are
choices made here. In the default setting the verifier has learned its format by SFT, and 5 steps alone suffice. The
generator's KL term is left out, as in `grpo`.

Measured here: against GRPO at as many updates of the generator (sums of four or five numbers, 10 steps of 8 x 8, after
60 steps of SFT and 5 of RL for the verifier; 5 seeds): held-out accuracy 15.7 % against 18.0 %, -2.3 points [-9.1,
+4.5]; training accuracy 18.2 % against 19.9 %, -1.7 points [-5.5, +2.0]: no difference that five seeds can show. The
balanced advantages of the verifier alone, on a bandit with 90 % incorrect solutions (10 seeds,
docs/experiments/class_balance.py): recall of correct solutions 0.479 against 0.098, balanced accuracy 0.689 against
0.541, +0.147 [+0.136, +0.158] (docs/experiments.md).
"""

from dataclasses import replace
from typing import Final

from posttrain.components.advantages.class_balanced import ClassBalanced
from posttrain.components.advantages.tango import Tango
from posttrain.components.rewards.by_role import ByRole
from posttrain.components.rewards.verification import Verification
from posttrain.components.rollouts.verified import Verified
from posttrain.methods.policy_gradient.grpo import with_rl
from posttrain.models import Model
from posttrain.recipes.changes import every_group, rollouts_of, sampled_of, sampling_of, with_models, with_stage
from posttrain.recipes.tree import Recipe
from posttrain.settings.checked_sums import checked_sums
from posttrain.stages.rl.roles import RoleLearning

PARENT: Final = "grpo"
SETTING: Final = "checked_sums"
PAPER: Final = "arXiv:2505.15034"
ROWS: Final = (108,)
INHERITED: Final = {"penalties": "none; the paper has a KL term for the generator"}


def tango(recipe: Recipe | None = None) -> Recipe:
    """A change to GRPO: a verifier scores the steps of every solution and is trained in alternation."""
    recipe = with_rl(recipe or checked_sums())
    stage = sampled_of(recipe)
    stage = replace(
        stage,
        rollout=Verified(n=rollouts_of(stage), sampling=sampling_of(stage)),
        reward=ByRole(parts={"policy": stage.reward, "verifier": Verification()}),
        filters=every_group(stage),
        advantage=Tango(),
        by_role={"verifier": RoleLearning(advantage=ClassBalanced(), every=3, warmup_steps=5)},
    )
    roles = {"verifier": Model(source="role:policy", trained=True)}
    return with_stage(with_models(replace(recipe, name="tango"), roles), stage)
