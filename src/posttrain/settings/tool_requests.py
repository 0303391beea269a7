"""Tool requests: a new model of 140,000 weights calls tools in ToolRL's layout; the reward is all or nothing.

It first imitates the layout; two demonstrations in five have the right calls, the others have random ones. Held-out
requests count as correct if layout and calls are.
"""

from dataclasses import replace

from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.rewards.tool_calls import ToolCalls
from posttrain.components.rollouts.independent import Independent
from posttrain.components.shapes.decoder import Decoder
from posttrain.components.tasks.tool_requests import WORDS, ToolRequests
from posttrain.engines import Sampling
from posttrain.evaluation.settings import Evaluation
from posttrain.models import Model
from posttrain.recipes.changes import rl_of, sft_of
from posttrain.recipes.tree import Recipe
from posttrain.settings.arithmetic import arithmetic
from posttrain.settings.demonstrations import demonstrations
from posttrain.training.settings import Learning


def tool_requests() -> Recipe:
    """A new decoder, four epochs of imitation, then 60 steps of 16 requests with 4 answers each."""
    recipe = arithmetic()
    imitation = replace(sft_of(demonstrations()), epochs=4.0, learner=Learning(optimizer=AdamW(lr=3e-3)))
    stage = replace(
        rl_of(recipe),
        steps=60,
        rollout=Independent(n=4, sampling=Sampling(max_tokens=40)),
        reward=ToolCalls(match="coarse"),
        learner=Learning(optimizer=AdamW(lr=1e-3)),
    )
    shape = Decoder(layers=2, width=64, mlp_width=192, words=WORDS)
    return replace(
        recipe,
        name="tool_requests",
        models={"policy": Model(source="new", shape=shape, trained=True)},
        tasks=ToolRequests(size=2000, right=0.4),
        stages={"sft": imitation, "rl": stage},
        evaluation=Evaluation(verifier=ToolCalls(match="coarse", high=0.0), holdout=200),
    )
