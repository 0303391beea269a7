"""One-Shot CFT: fine-tuning on critiques of many candidate solutions of one problem.

Source: Wang et al. 2025, arXiv:2506.03295, and its release: about 100 candidate solutions of one problem by several
models, critiques of each by several teachers, which name the error, give the correct result, and end in a conclusion of
a fixed form; critiques without it are dropped. Training is plain SFT: the instruction, the problem and the candidate
are the prompt, the critique the completion. It goes over a few hundred rows many times, and the checkpoint with the
best validation is kept (`sft.best`): with about one step an epoch, later ones overfit the problem. The tuned model then
simply solves problems.

    posttrain run critique_ft tasks.tasks=mine.jsonl    # columns: prompt (instruction, problem, candidate), completion

The completion is the critique, and ends as `tasks.conclusion` has it. Held-out tasks: `evaluation.tasks=FILE`, and
those of the validation `sft.best.tasks=FILE` (columns: prompt, answer).

`CHANGES`: critiques of the problem take the place of its solution. On other data than generated sums, it needs
critiques that are there already.

Differs: candidates and critiques are written by rules, not by models; batches are of 32 rows, not 512.

Measured here (60 steps, 5 seeds, which only order the rows): held-out sums of three to five numbers at the step with
the best validation, 19.5 % before: critiques 16.8 %, imitation of the one solution 41.0 %, +24.2 points [23.8, 24.6]
(97.5 %), of the correct candidates 26.4 %, +9.6 [8.9, 10.3]; GRPO on the one problem (30 steps of 64 rollouts, one
seed) 11.5 %. Against the paper, critiques teach this model nothing that it uses to solve: a single solution teaches it
the habit of writing steps down, which is what it lacks (docs/experiments.md).
"""

from dataclasses import replace
from typing import Final

from posttrain.components.tasks.arithmetic import Arithmetic
from posttrain.components.tasks.concluded import Concluded
from posttrain.components.tasks.critiques import Critiques
from posttrain.methods.sft_rl.sft import sft
from posttrain.recipes.tree import Recipe
from posttrain.settings.one_problem import one_problem

PARENT: Final = "sft"
SETTING: Final = "one_problem"
PAPER: Final = "arXiv:2506.03295"
ROWS: Final = (97,)
CHANGES: Final = ("tasks",)


def critique_ft(recipe: Recipe | None = None) -> Recipe:
    """A change to SFT: critiques of candidates instead of solutions."""
    recipe = sft(recipe or one_problem())
    source = Critiques(of=recipe.tasks) if isinstance(recipe.tasks, Arithmetic) else recipe.tasks
    return replace(recipe, name="critique_ft", tasks=Concluded(tasks=source))
