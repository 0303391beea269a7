"""Styled programs: small Bash programs, each with a preference that its form is rated by.

In a warm-up the bundled model imitates programs of all forms, most with their principle in front. Then it imitates
programs that are right, without a principle, and learns from pairs that are rated by code. Held-out programs are run.
"""

from dataclasses import replace

from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.pairings.extremes import Extremes
from posttrain.components.rewards.io_tests import IOTests
from posttrain.components.rewards.program_form import ProgramForm
from posttrain.components.selections.paired import Paired
from posttrain.components.tasks.styled_programs import StyledPrograms
from posttrain.engines import Sampling
from posttrain.evaluation.settings import Evaluation
from posttrain.recipes.changes import preference_of, sft_of
from posttrain.recipes.tree import Recipe
from posttrain.settings.demonstrations import demonstrations
from posttrain.settings.sum_pairs import sum_pairs


def styled_programs() -> Recipe:
    """100 updates of warm-up, 40 of imitation, then two passes over pairs of 200 tasks."""
    recipe, imitation = sum_pairs(), sft_of(demonstrations())
    learner = replace(imitation.learner, optimizer=AdamW(lr=3e-3))
    warmup = replace(
        imitation,
        tasks=StyledPrograms(size=800, seed=1, shown=0.7),
        batch=16,
        epochs=2.0,
        max_steps=100,
        learner=learner,
    )
    learner = replace(imitation.learner, optimizer=AdamW(lr=1e-3))
    imitation = replace(imitation, batch=16, epochs=3.0, max_steps=40, learner=learner)
    stage = preference_of(recipe)
    pairs = replace(
        stage,
        batch=16,
        epochs=2.0,
        selection=Paired(pairing=Extremes(), reward=ProgramForm(), n=4, max_tokens=64, first=200),
        learner=replace(stage.learner, optimizer=AdamW(lr=1e-4)),
    )
    return replace(
        recipe,
        name="styled_programs",
        tasks=StyledPrograms(size=300),
        stages={"lesson": warmup, "sft": imitation, "dpo": pairs},
        evaluation=Evaluation(verifier=IOTests(language="bash"), holdout=60, sampling=Sampling(max_tokens=64)),
    )
