"""Puzzles: products of two digits with a number added, with two solutions, both of which are asked for.

The bundled model first imitates trees of their factors, with and without an empty block of thoughts after the prompt.
Half of the trees stop at the first solution, so that whole sets are there to be reinforced.
"""

from dataclasses import replace

from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.rewards.solution_set import SolutionSet
from posttrain.components.rollouts.independent import Independent
from posttrain.components.tasks.mixture import Mixture
from posttrain.components.tasks.puzzles import Puzzles
from posttrain.engines import Sampling
from posttrain.evaluation.settings import Evaluation
from posttrain.recipes.changes import rl_of, sft_of
from posttrain.recipes.tree import Recipe
from posttrain.settings.arithmetic import arithmetic
from posttrain.settings.demonstrations import demonstrations
from posttrain.training.settings import Learning

EMPTY = "<think></think>"
"""An empty block of thoughts, as the bundled model has seen it."""


def puzzles() -> Recipe:
    """150 updates of imitation, then 30 steps of 8 puzzles with 8 answers each."""
    recipe, imitation = arithmetic(), sft_of(demonstrations())
    shown = {
        name: Puzzles(names=("product",), size=300, seed=1, solutions=(2, 2), first=0.5, suffix=text)
        for name, text in (("bare", ""), ("empty", EMPTY))
    }
    warmup = replace(
        imitation,
        tasks=Mixture(sources=shown),
        batch=16,
        epochs=8.0,
        max_steps=150,
        learner=replace(imitation.learner, optimizer=AdamW(lr=3e-3)),
    )
    stage = replace(
        rl_of(recipe),
        steps=30,
        prompts=8,
        rollout=Independent(n=8, sampling=Sampling(max_tokens=64)),
        reward=SolutionSet(),
        learner=Learning(optimizer=AdamW(lr=2e-4)),
    )
    return replace(
        recipe,
        name="puzzles",
        tasks=Puzzles(names=("product",), size=300, solutions=(2, 2)),
        stages={"lesson": warmup, "rl": stage},
        evaluation=Evaluation(holdout=100, verifier=stage.reward),
    )
