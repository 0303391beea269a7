"""Tool calls: a thought, then function calls; which function is right is found out by rewards.

The bundled model first imitates the format, with random functions (`tasks/tool_calls.py`), so that a request for one
call is answered rightly once in sixteen. The reward is 1 only if the format is right and the calls are.
"""

from dataclasses import replace

from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.rewards.calls import Calls
from posttrain.components.rewards.format import Format
from posttrain.components.rewards.gated import Gated
from posttrain.components.rollouts.independent import Independent
from posttrain.components.tasks.tool_calls import ToolCalls
from posttrain.engines import Sampling
from posttrain.evaluation.settings import Evaluation
from posttrain.recipes.changes import rl_of, sft_of
from posttrain.recipes.tree import Recipe
from posttrain.settings.arithmetic import arithmetic
from posttrain.settings.demonstrations import demonstrations
from posttrain.training.settings import Learning


def tool_calls() -> Recipe:
    """Four epochs of imitation, then 100 steps with groups of 8 answers."""
    recipe = arithmetic()
    imitation = sft_of(demonstrations())
    imitation = replace(imitation, epochs=4.0, learner=replace(imitation.learner, optimizer=AdamW(lr=2e-3)))
    stage = replace(
        rl_of(recipe),
        rollout=Independent(n=8, sampling=Sampling(max_tokens=64)),
        reward=Gated(reward=Calls(), gate={"form": Format(tags=("think", "call"))}),
        learner=Learning(optimizer=AdamW(lr=4e-4)),
    )
    return replace(
        recipe,
        name="tool_calls",
        tasks=ToolCalls(size=1200, calls=(1, 1)),
        stages={"sft": imitation, "rl": stage},
        evaluation=Evaluation(holdout=200, verifier=stage.reward),
    )
