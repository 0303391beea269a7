"""Agnostics: GRPO for programming in any language, with a language-agnostic verifier of program outputs.

Source: Boruch-Gruszecki et al. 2025, arXiv:2508.04865: GRPO with a verifier that needs only the commands to compile and
run a language. The reward is 1 for a program with the expected output for every input, 0.2 for one that runs and prints
something else, 0 for one that fails.

    posttrain run agnostics tasks=mine.jsonl model=FOLDER
    # columns: prompt, tests ([{input: ..., output: ...}, ...]), language (bash, ...), completion (a program to imitate)

Differs: samples are on-policy, not one step old.
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
    """A change to GRPO: programs are scored by their output, with a partial reward for running to the end."""
    recipe = with_rl(recipe or programs())
    stage = rl_of(recipe)
    tests = stage.reward if isinstance(stage.reward, IOTests) else IOTests()
    stage = replace(stage, reward=replace(tests, wrong_output=0.2))
    return with_stage(replace(recipe, name="agnostics"), stage)
