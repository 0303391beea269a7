"""Boxes: the bundled model with an adapter names the box that a ball is in, which the prompt states.

It first imitates random answers, to learn the format.
"""

from dataclasses import replace

from posttrain.components.environments.try_again import TryAgain
from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.rewards.match import Match
from posttrain.components.rollouts.independent import Independent
from posttrain.components.tasks.guessing import Guessing
from posttrain.components.tasks.played import Played
from posttrain.engines import Sampling
from posttrain.evaluation.settings import Evaluation
from posttrain.models import LoRA, Model
from posttrain.recipes.changes import rl_of, sft_of
from posttrain.recipes.tree import Recipe
from posttrain.settings.arithmetic import arithmetic
from posttrain.settings.demonstrations import demonstrations
from posttrain.settings.guessing import BOXES
from posttrain.training.settings import Learning


def boxes() -> Recipe:
    """The bundled model, imitation of random answers, then groups of 8 answers to 8 questions per step."""
    recipe = arithmetic()
    tasks, answer = Guessing(size=1000, hidden=0.0), Match(extract=("whole",))
    shown = Played(tasks=tasks, environment=TryAgain(), actions=tuple(f" {box}" for box in BOXES), turns=1)
    imitation = replace(sft_of(demonstrations()), tasks=shown, max_steps=20, learner=Learning(optimizer=AdamW(lr=3e-3)))
    stage = replace(
        rl_of(recipe),
        steps=30,
        prompts=8,
        rollout=Independent(n=8, sampling=Sampling(max_tokens=4)),
        reward=answer,
        learner=Learning(optimizer=AdamW(lr=1e-3)),
    )
    return replace(
        recipe,
        name="boxes",
        models={"policy": Model(source="pebble", trained=True, lora=LoRA())},
        tasks=tasks,
        stages={"sft": imitation, "rl": stage},
        evaluation=Evaluation(verifier=answer, holdout=60),
    )
