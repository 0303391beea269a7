"""Verilog: a new model writes small hardware modules, and is rewarded for passing their test benches.

Formulas and test benches are generated. The model first imitates a plan as reasoning and the module after it.
"""

from dataclasses import replace
from typing import Final

from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.rewards.verilog import Verilog
from posttrain.components.rollouts.independent import Independent
from posttrain.components.shapes.decoder import Decoder
from posttrain.components.tasks.circuits import MODULE, SIGNS, Circuits
from posttrain.engines import Sampling
from posttrain.evaluation.settings import Evaluation
from posttrain.models import Model
from posttrain.recipes.changes import rl_of, sft_of
from posttrain.recipes.tree import Recipe
from posttrain.settings.arithmetic import arithmetic
from posttrain.settings.demonstrations import demonstrations

WORDS: Final = (
    *("Verilog: ", "not ", "then ", *(f"{operator} " for operator in SIGNS), *(f" {sign} " for sign in SIGNS.values())),
    *("<think>", "</think>\n<answer>\n```verilog\n", *MODULE.split("{}"), "\n```\n</answer>"),
)
"""One token each, so that an answer is short."""


def verilog() -> Recipe:
    """A new decoder, 70 steps of imitation, then 30 of reinforcement: 16 tasks, 8 rollouts each at temperature 0.5."""
    recipe = arithmetic()
    imitation = sft_of(demonstrations())
    imitation = replace(imitation, max_steps=70, learner=replace(imitation.learner, optimizer=AdamW(lr=3e-3)))
    stage = rl_of(recipe)
    passing = Verilog(right=1.0, compiles=0.0, structure=0.0)
    stage = replace(
        stage,
        steps=30,
        prompts=16,
        rollout=Independent(n=8, sampling=Sampling(temperature=0.5, max_tokens=64)),
        reward=passing,
        learner=replace(stage.learner, optimizer=AdamW(lr=5e-5)),
    )
    return replace(
        recipe,
        name="verilog",
        models={
            "policy": Model(source="new", shape=Decoder(layers=2, width=128, context=128, words=WORDS), trained=True)
        },
        tasks=Circuits(size=4000),
        stages={"sft": imitation, "rl": stage},
        evaluation=Evaluation(verifier=passing, holdout=60),
    )
