"""ArCHer: an off-policy critic of whole turns, and a policy that learns from its values token by token.

Source: arXiv:2402.19446, and its released code (YifeiZhou02/ArCHer at 7c771a7). Every rollout is stored. A critic with
two heads of Q(state, turn) and two of V(state) learns from stored turns with a slow copy, and V from turns that the
policy would write now; the policy learns by REINFORCE from turns that it writes in stored states, with the smaller Q
minus the smaller V as the advantage of all their tokens (`stages/hierarchical`). Gamma .95, tau .1; 50 updates of the
critic and 3 of the policy in each step of 128 rollouts, 256 turns each, after 20 steps without the policy.

    posttrain run archer setting=lock model=FOLDER rl.rollout.environment.kind=mine.py rl.tasks=mine.jsonl
    # columns: prompt, and what the environment reads

Differs: see `stages/hierarchical`. The default has 32 rollouts in a step, 128 turns in an update and 15 steps without
the policy, for its size. It has the optional baseline of single tokens.

Measured here with models (five seeds, 1,920 episodes each): the lock is opened in 100, 100, 100, 0 and 100 % of 20
held-out episodes, without the baseline in 100, 0, 100, 0 and 75 %. By REINFORCE (RLOO without its KL) it is opened in
85, 15, 0, 0 and 0 % at the same rate, and in 100, 0, 0, 100 and 100 % at the best of two, 2e-3, where those seeds that
find the combination by chance need fewer episodes than ArCHer: 1,120 to 1,440 until half of a step's are rewarded, in
place of 1,504 to 1,728. The critic must be fitted before it is followed: with 8 or 12 updates of it in a step, or a
policy at 1e-3 with 25, the format is lost, as noise of the critic is learned at full steps of Adam.

With tables in place of models (a lock of three turns with four symbols, 10 seeds, 32 episodes a step): episodes until
the policy opens it nine times in ten, at rates of .01, .03, .1 and .3: 2,682 [2,658, 2,705], 963 [916, 1,011], 429
[359, 499] and 461 [64, 858], by REINFORCE 7,456 [7,353, 7,559], 2,490 [2,454, 2,525], 848 [804, 892] and 326 [263,
390]. At the same rate up to .1 it needs 2.0 to 2.8 times fewer, with three updates of the policy a step in place of
one; at the best rate of each, no fewer: the claim of about 100 times fewer is not found (docs/experiments.md).
"""

from dataclasses import replace
from typing import Final

from posttrain.components.objectives.policy_gradient import PolicyGradient
from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.reducers.constant import Constant
from posttrain.models import Model
from posttrain.recipes.changes import rl_of, with_models
from posttrain.recipes.tree import Recipe
from posttrain.settings.lock import lock
from posttrain.stages.hierarchical import OUTPUTS, Hierarchical
from posttrain.training.settings import Learning

PARENT: Final = "rloo"
SETTING: Final = "lock"
PAPER: Final = "arXiv:2402.19446"
ROWS: Final = (223,)


def archer(recipe: Recipe | None = None) -> Recipe:
    """A change of the stage: rollouts are stored, and their states are where critic and policy learn."""
    recipe = recipe or lock()
    stage = rl_of(recipe)
    changed = Hierarchical(
        steps=stage.steps,
        prompts=stage.prompts,
        rollout=stage.rollout,
        reward=stage.reward,
        objective=PolicyGradient(),
        reducer=Constant(length=1.0),
        batch=128,
        warmup_steps=15,
        baseline_role="baseline",
        learner=stage.learner,
        critic_learner=Learning(optimizer=AdamW(lr=1e-3)),
        max_grader_errors=stage.max_grader_errors,
        audit=stage.audit,
        tasks=stage.tasks,
    )
    critic = replace(recipe.models["policy"], head="reward", outputs=OUTPUTS)
    if critic.source != "new":
        critic = Model(source="role:policy", head="reward", outputs=OUTPUTS, trained=True)
    target = Model(source="role:critic", head="reward", outputs=OUTPUTS)
    stages = {name: changed if own is stage else own for name, own in recipe.stages.items()}
    baseline = replace(critic, head="value", outputs=1)
    models = {"critic": critic, "target_critic": target, "baseline": baseline}
    return with_models(replace(recipe, name="archer", stages=stages), models)
