"""R1-Fuzz: inputs for lines of a program that nothing has reached yet, rewarded by how near they come.

Source: arXiv:2509.20384, of which abstract and notes could be read; formulas and the loop's details were not found. A
question shows the code around a line; the answer is an input, which is run. GRPO rewards it by the guards that it
passes and the distance to the next one (`rewards/branch_distance`), and questions are lines behind covered ones, closed
when they are reached (`curricula/coverage`).

    posttrain run r1_fuzz tasks=mine.jsonl model=FOLDER
    # columns: prompt, source (Python), function (a name), line (to be reached), parent (the line before, if any)
    posttrain fuzz target.py:parse --model runs/r1_fuzz-1 --budget 5000       # a function of your own

Differs: both are our own form, that of search-based testing. A group without spread has no gradient; there is no
distance by the call graph to fall back on. Crashes are in the record of rollouts; `posttrain fuzz` keeps them in a
folder of AFL++'s form, and takes functions in C too. Rewards are for Python functions, not files for compilers.

Measured here over five seeds (`docs/experiments/fuzz_guards.py`), behind five nested equalities, in 2,000 executions
for each of 30 lines: hill climbing reaches none where only the line is rewarded, all with the guards passed or the
distance for numbers up to 30, and none with the guards against 25.4 [24.3, 26.5] with the distance for numbers up to
999. For numbers up to 40, 50, 60, 99 and 255 the guards reach 29.0 [27.5, 30.5], 26.8 [24.0, 29.6], 22.8 [18.9, 26.7],
12.2 [8.5, 15.9] and 0.8 [-0.2, 1.8], the distance all: it helps where the next number is rarely drawn and steps lead to
it. Where changes are new numbers alone, both reach 28.8 [27.4, 30.2] up to 40 and 1.0 [-0.2, 2.2] up to 255. A table
trained with GRPO reaches 29.8 [29.2, 30.4] with the guards and 5.0 [3.5, 6.5] with the distance, as its numbers have no
order. Of 30 lines in 6 programs 5,000 executions cover 26.0 [21.6, 30.4] with questions at the frontier, 27.4 [24.4,
30.4] with any line and 20.8 [13.6, 28.0] by mutation: the frontier makes no difference that five seeds can show.

Beside other fuzzers (`docs/experiments/fuzz_peers.py`, five seeds, 5,000 executions, no model): of 30 lines behind
guards `posttrain fuzz` reaches 19.2 [15.1, 23.3] by edits of numbers and 12.2 [9.4, 15.0] by edits of bytes, atheris
13.6 [9.8, 17.4] and AFL++ 15.8 [13.0, 18.6], with CMPLOG as many; for numbers up to 999 these are 13.4 [9.3, 17.5], 9.4
[4.2, 14.6], 10.0 [5.3, 14.7] and 11.0 [6.8, 15.2]. A thousand executions take 7.3 s
with the start, 0.2 s by atheris and 1.1 s by AFL++ (once, on a busy machine).

The default run (one seed, 52 s on one of two busy cores): of 194 lines of other programs 16.5 % [11.9, 22.4] are
reached after imitation and 27.3 % [21.5, 34.0] after 40 steps: 44 and 65 % of those behind one guard, 20 and 32 %
behind two, 4 and 12 % behind three. 338 of the training programs' lines are covered meanwhile.
"""

from dataclasses import replace
from typing import Final

from posttrain.components.curricula.coverage import Coverage
from posttrain.components.rewards.branch_distance import BranchDistance
from posttrain.methods.policy_gradient.grpo import grpo
from posttrain.recipes.changes import keep_verifier, rl_of, with_stage
from posttrain.recipes.tree import Recipe
from posttrain.settings.guarded_lines import guarded_lines

PARENT: Final = "grpo"
SETTING: Final = "guarded_lines"
PAPER: Final = "arXiv:2509.20384"
ROWS: Final = (124,)


def r1_fuzz(recipe: Recipe | None = None) -> Recipe:
    """A change to GRPO: the distance to a line as reward, and lines at the edge of what is covered."""
    recipe = grpo(keep_verifier(recipe or guarded_lines()))
    stage = rl_of(recipe)
    own = stage.reward if isinstance(stage.reward, BranchDistance) else BranchDistance()
    stage = replace(stage, reward=replace(own, credit="distance"), curriculum=Coverage())
    return with_stage(replace(recipe, name="r1_fuzz"), stage)
