"""Clinic: a new model of 200k weights asks a patient about symptoms and names a disease.

It first imitates a doctor who asks for the most informative symptom, but not for long: at temperature 1 much is left to
learn. There are four diseases and three symptoms.
"""

from dataclasses import replace
from typing import Final

from posttrain.components.environments.clinic import Clinic
from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.rewards.verdict import Verdict
from posttrain.components.rollouts.turns import Turns
from posttrain.components.shapes.decoder import Decoder
from posttrain.components.tasks.episodes import Episodes
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
    *("<answer>", "</answer>", "Diagnosis: ", ". Recommendation: ", "?", "\nYes.", "\nNo.", " Turn ", "episode 0-"),
    *(f"{letter}{number}" for letter in "sdr" for number in range(8)),
)
"""One token each."""


def clinic() -> Recipe:
    """A new decoder, imitation of the solver, then groups of 8 dialogues for 16 patients per step."""
    recipe = arithmetic()
    environment, tasks = Clinic(diseases=4, symptoms=3), Episodes(size=400)
    shown = Played(tasks=tasks, environment=environment, player="solver", turns=10)
    imitation = replace(sft_of(demonstrations()), tasks=shown, epochs=4.0, learner=Learning(optimizer=AdamW(lr=3e-3)))
    stage = replace(
        rl_of(recipe),
        steps=60,
        prompts=16,
        rollout=Turns(environment=environment, n=8, max_turns=10, sampling=Sampling(max_tokens=12)),
        reward=Verdict(),
        learner=Learning(optimizer=AdamW(lr=4e-4)),
    )
    shape = Decoder(layers=2, width=64, mlp_width=192, words=WORDS)
    return replace(
        recipe,
        name="clinic",
        models={"policy": Model(source="new", shape=shape, trained=True)},
        tasks=tasks,
        stages={"sft": imitation, "rl": stage},
        evaluation=Evaluation(verifier=Verdict(value="solved"), holdout=40, samples=2),
    )
