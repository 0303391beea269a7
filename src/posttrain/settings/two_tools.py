"""Two tools: a new model of 200k weights answers questions by a search and a calculator, in four turns.

It first imitates worked questions, a few of them additions, and is then rewarded for answers, not for the use of tools.
"""

from dataclasses import replace
from typing import Final

from posttrain.components.environments.two_tools import TwoTools
from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.rewards.routed import Routed
from posttrain.components.rewards.tool_use import ToolUse
from posttrain.components.rollouts.turns import Turns
from posttrain.components.shapes.decoder import Decoder
from posttrain.components.tasks.lookups import ITEMS, Lookups
from posttrain.components.tasks.played import Played
from posttrain.engines import Sampling
from posttrain.evaluation.settings import Evaluation
from posttrain.models import Model
from posttrain.recipes.changes import rl_of, sft_of
from posttrain.recipes.tree import Recipe
from posttrain.settings.arithmetic import arithmetic
from posttrain.settings.demonstrations import demonstrations
from posttrain.training.settings import Learning

WORDS: Final = (
    *(f"<{slash}{tag}>" for tag in ("think", "search", "python", "answer") for slash in ("", "/")),
    *("<think>so</think>", " <result>\n", "\n</result>", "error", "\\boxed{", "}", " plus ", "Q "),
    *ITEMS,
)
"""One token each."""


def two_tools() -> Recipe:
    """A new decoder, imitation of worked questions, then groups of 8 rollouts."""
    recipe = arithmetic()
    environment, tasks = TwoTools(), Lookups(size=1000, maths=0.2, largest=9)
    shown = Played(tasks=tasks, environment=environment)
    imitation = replace(sft_of(demonstrations()), tasks=shown, epochs=3.0, learner=Learning(optimizer=AdamW(lr=3e-3)))
    reward = Routed(parts={"questions": ToolUse(bonus=0.0), "maths": ToolUse(scale="maths")}, other=ToolUse(bonus=0.0))
    stage = replace(
        rl_of(recipe),
        steps=40,
        prompts=8,
        rollout=Turns(environment=environment, n=8, max_turns=4, sampling=Sampling(max_tokens=16)),
        reward=reward,
        learner=Learning(optimizer=AdamW(lr=5e-4)),
    )
    shape = Decoder(layers=2, width=64, mlp_width=192, words=WORDS)
    return replace(
        recipe,
        name="two_tools",
        models={"policy": Model(source="new", shape=shape, trained=True)},
        tasks=tasks,
        stages={"sft": imitation, "rl": stage},
        evaluation=Evaluation(verifier=reward, holdout=60, samples=2),
    )
