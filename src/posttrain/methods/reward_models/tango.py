"""Tango: a generator and a verifier of its steps are trained in turn; each is what the other learns from.

Source: Zha et al. 2025, arXiv:2505.15034: the generator is paid for its answers and for what the verifier says of its
steps, with a share of the latter that decays; the verifier is paid for its final verdict, with advantages balanced
between right and wrong solutions; three updates of the generator for one of the verifier, after some of the verifier
alone (40).

Differs: no code was released, and start and rate of the decay, the moving average and the weight of the form are
choices made here. The bundled model follows no instructions, so the verifier first imitates verifications that were
generated; 5 steps alone then do. The generator's KL term is left out, as in `grpo`. Sizes are for the bundled model.

Measured here: against GRPO at as many updates of the generator (sums of four or five numbers, 10 steps of 8 x 8, after
60 steps of imitation and 5 of reinforcement for the verifier; 5 seeds): held-out accuracy 15.7 % against 18.0 %, -2.3
points [-9.1, +4.5]; solved while training 18.2 % against 19.9 %, -1.7 points [-5.5, +2.0]: no difference that five
seeds can show. The scales of the verifier alone, on a bandit of which 90 % is wrong (10 seeds,
docs/experiments/class_balance.py): recall of right solutions 0.479 against 0.098, balanced accuracy 0.689 against
0.541, +0.147 [+0.136, +0.158] (docs/experiments.md).
"""

from dataclasses import replace
from typing import Final

from posttrain.components.advantages.class_balanced import ClassBalanced
from posttrain.components.advantages.tango import Tango
from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.rewards.by_role import ByRole
from posttrain.components.rewards.verification import Verification
from posttrain.components.rollouts.verified import Verified
from posttrain.components.tasks.checked_workings import CheckedWorkings
from posttrain.methods.policy_gradient.grpo import grpo
from posttrain.methods.sft_rl.sft import sft
from posttrain.models import Model
from posttrain.recipe.changes import rl_of, sampling_of, sft_of, with_models
from posttrain.recipe.tree import Recipe
from posttrain.stages.rl.roles import RoleLearning

ROWS: Final = (108,)


def tango(recipe: Recipe | None = None) -> Recipe:
    """A change to GRPO: a verifier is made, reads every solution, is trained in turn, and helps to give credit."""
    recipe = recipe or grpo()
    stage = rl_of(recipe)
    stage = replace(
        stage,
        rollout=Verified(n=getattr(stage.rollout, "n", 8), sampling=sampling_of(stage)),
        reward=ByRole(parts={"policy": stage.reward, "verifier": Verification()}),
        filters={},
        advantage=Tango(),
        by_role={"verifier": RoleLearning(advantage=ClassBalanced(), every=3, warmup_steps=5)},
    )
    form = sft_of(sft())
    form = replace(
        form,
        role="verifier",
        tasks=CheckedWorkings(size=6000, terms=(2, 4)),
        learner=replace(form.learner, optimizer=AdamW(lr=3e-3)),
    )
    roles = {"verifier": Model(source="role:policy", trained=True)}
    return with_models(replace(recipe, name="tango", stages={"verifier": form, "rl": stage}), roles)
