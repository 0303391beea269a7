"""Tool plans: the bundled model writes chains of typed tools for tasks in words, after ten demonstrations.

There are 214 chains of up to four of eight tools, 60 of which are held out. The reward is the similarity of what a plan
gives to what is wanted, and -1 for a plan that does not fit; in evaluation such a plan has 0.
"""

from dataclasses import replace

from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.rewards.chains import Chains
from posttrain.components.rollouts.independent import Independent
from posttrain.components.schedules.constant import Constant
from posttrain.components.tasks.planned import Planned
from posttrain.engines import Sampling
from posttrain.evaluation.settings import Evaluation
from posttrain.recipes.changes import rl_of, sft_of
from posttrain.recipes.tree import Recipe
from posttrain.settings.arithmetic import arithmetic
from posttrain.settings.demonstrations import demonstrations
from posttrain.training.settings import Learning


def tool_plans() -> Recipe:
    """Forty steps on ten demonstrations, then 60 steps of 8 tasks with 8 plans each."""
    recipe, imitation = arithmetic(), sft_of(demonstrations())
    stage = replace(
        rl_of(recipe),
        steps=60,
        prompts=8,
        rollout=Independent(n=8, sampling=Sampling(max_tokens=96)),
        reward=Chains(),
        learner=Learning(optimizer=AdamW(lr=2e-4), schedule=Constant(warmup=0.05)),
    )
    shots = replace(
        imitation,
        batch=10,
        limit=10,
        max_steps=40,
        epochs=1000.0,
        learner=replace(imitation.learner, optimizer=AdamW(lr=1e-3)),
    )
    return replace(
        recipe,
        name="tool_plans",
        tasks=Planned(size=214),
        stages={"sft": shots, "rl": stage},
        evaluation=Evaluation(
            verifier=Chains(invalid=0.0), holdout=60, sampling=Sampling(max_tokens=96, temperature=0.0)
        ),
    )
