"""FAFT: imitation of good and bad plans alike, each with the results of its checks before it; all are good at test.

Source: feedback-aware fine-tuning, Chen et al. 2024, arXiv:2408.06318, research question 4 and appendix A: plans are
sampled, a checker writes a line for each of its eight commonsense checks, ``name: success`` or ``name: fail``, and the
lines stand between query and plan. At test all lines say success. The trainer and the loss are those of SFT.

    posttrain run faft tasks.tasks=plans.jsonl    # columns: prompt, completion, checks ({"budget": true, ...})

With `tasks.asked={budget: false}` held-out plans should fail one check.

`CHANGES`: the tasks are the same ones, with feedback.

Differs: the loss is on the plan only; the paper does not state whether it is on the prompt too. The setting's plans are
routes of five stops, drawn by a program that neglects things.

Measured here, 3,000 routes of which 6 % pass every check, 6 epochs, 5 seeds: 30 % [22, 38] of 200 held-out routes pass
every check with feedback, 27 % [23, 31] after SFT on the routes that pass alone (60 epochs), 0 % [0, 0] after SFT on
all of them, most of which go the wrong way round. Five seeds do not separate feedback from the choice of good routes at
this size (docs/experiments.md).
"""

from dataclasses import replace
from typing import Final

from posttrain.components.tasks.with_feedback import WithFeedback
from posttrain.methods.sft_rl.sft import sft
from posttrain.recipes.tree import Recipe
from posttrain.settings.routes import routes

PARENT: Final = "sft"
SETTING: Final = "routes"
PAPER: Final = "arXiv:2408.06318"
ROWS: Final = (201,)
CHANGES: Final = ("tasks",)


def faft(recipe: Recipe | None = None) -> Recipe:
    """A change to SFT: the results of checks before each demonstration, and success in all of them at test."""
    recipe = sft(recipe or routes())
    return replace(recipe, name="faft", tasks=WithFeedback(tasks=recipe.tasks))
