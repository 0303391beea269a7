"""Agnostics: learn to program, in any language, from what programs print.

Source: Boruch-Gruszecki et al. 2025, arXiv:2508.04865: GRPO with a verifier that knows of a language only how to
compile and run it; 1 for a program that prints what is expected for every input, 0.2 for one that runs and prints
something else, 0 for one that fails.

    posttrain run agnostics tasks=mine.jsonl model=FOLDER
    # columns: prompt, tests ([{input: ..., output: ...}, ...]), language (bash, ...), completion (a program to imitate)

Differs: samples are of the weights that are trained, not a step old.
"""

from dataclasses import replace
from typing import Final

from posttrain.components.rewards.io_tests import IOTests
from posttrain.methods.policy_gradient.grpo import with_rl
from posttrain.recipes.changes import rl_of, with_stage
from posttrain.recipes.tree import Recipe
from posttrain.settings.programs import programs

PARENT: Final = "grpo"
SETTING: Final = "programs"
PAPER: Final = "arXiv:2508.04865"
ROWS: Final = (116,)
INHERITED: Final = {
    "reducer": "all tokens of a step alike; the release takes the mean within a completion first",
    "objective": "clip 0.2; the release has 0.1, which is never reached, with one update a batch",
}


def agnostics(recipe: Recipe | None = None) -> Recipe:
    """A change to GRPO: programs are judged by what they print, and running to the end is worth something."""
    recipe = with_rl(recipe or programs())
    stage = rl_of(recipe)
    tests = stage.reward if isinstance(stage.reward, IOTests) else IOTests()
    stage = replace(stage, reward=replace(tests, wrong_output=0.2))
    return with_stage(replace(recipe, name="agnostics"), stage)
