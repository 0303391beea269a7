"""Agnostics: learn to program, in any language, from what programs print.

Source: Boruch-Gruszecki et al. 2025, arXiv:2508.04865: GRPO with a verifier that knows of a language only how to
compile and run it; 1 for a program that prints what is expected for every input, 0.2 for one that runs and prints
something else, 0 for one that fails.

Differs: the bundled model has never seen a program, so that it first imitates a few; the tasks are generated (bash,
which starts fastest; ``tasks.languages=[bash,lua,perl,python]`` for more). Samples are of the weights that are trained,
not a step old. Sizes for the bundled model.
"""

from dataclasses import replace
from typing import Final

from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.rewards.io_tests import IOTests
from posttrain.components.rollouts.independent import Independent
from posttrain.components.tasks.programs import Programs
from posttrain.engines import Sampling
from posttrain.evaluation.settings import Evaluation
from posttrain.methods.policy_gradient.grpo import grpo
from posttrain.methods.sft_rl.sft import sft
from posttrain.recipe.changes import rl_of, sft_of
from posttrain.recipe.tree import Recipe

ROWS: Final = (116,)


def agnostics(recipe: Recipe | None = None) -> Recipe:
    """A change to GRPO: programs as tasks, judged by running them, after the imitation of a few."""
    recipe = recipe or grpo()
    imitation = sft_of(sft())
    imitation = replace(imitation, batch=16, max_steps=60, learner=replace(imitation.learner, optimizer=AdamW(lr=3e-3)))
    stage = replace(
        rl_of(recipe),
        steps=30,
        prompts=8,
        rollout=Independent(n=8, sampling=Sampling(max_tokens=48)),
        reward=IOTests(language="bash", wrong_output=0.2),
    )
    return replace(
        recipe,
        name="agnostics",
        tasks=Programs(size=600),
        stages={"sft": imitation, "rl": stage},
        evaluation=Evaluation(verifier=IOTests(language="bash"), holdout=60, every=10),
    )
