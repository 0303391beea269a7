"""B-STaR: rounds of SFT on own solutions, each at the temperature and threshold that balance their number and quality.

Source: arXiv:2412.17256, and its released code (hkust-nlp/B-STaR at a0f5d95e). In each round 15 temperatures are tried
on a part of the tasks, and 201 thresholds of a score of solutions; the pair with the highest mean of min(n' / n*, 1) n'
/ n is taken, n solutions of a query being selected and n' of them correct. All tasks are sampled at that temperature,
the threshold is searched again, and the selected solutions are imitated from the weights of the round before. Nine
rounds of 500 steps with n* = 8 in the paper.

    posttrain run b_star tasks=mine.jsonl model=FOLDER    # columns: prompt, answer, completion (if there is one)
    # in each round, with a process reward model:
    sft_1.selection.steps='{kind: process, ...}' sft_1.selection.dev=1000 sft_1.selection.target=67500

Every round notes temperature, threshold, balance, distinct correct texts and how often the best text is correct.

Differs: three rounds, 5 temperatures, 4 rollouts, and a hundred tasks for the search, for two cores. The weights go on
from round to round; the optimizer's moments and the schedule begin anew, where one of each goes on in the release; with
`learner.carried=true` in the later rounds the moments go on. Without a process reward model the score is correctness
alone, as the setting has none.

Measured here: a table, nine rounds (5 seeds, `docs/experiments/balanced_rounds.py`): the balance takes temperatures of
1.16 [1.09, 1.23] in the first and in the last round, so that they do not rise; pass@32 is .874 [.845, .903], .824
[.791, .857] at a fixed temperature of 1 and .599 [.555, .642] at .5; accuracy .522, .514 and .351; distinct correct
texts of a query 1.50, 1.23 and .45. By precision alone the temperature is .5 and pass@32 .587 [.548, .626]: diversity
is lost, as expected (docs/experiments.md).
"""

from dataclasses import replace
from typing import Final

from posttrain.components.selections.balanced import Balanced
from posttrain.errors import UserError
from posttrain.methods.sft_rl.sft import sft
from posttrain.recipes.changes import sft_of
from posttrain.recipes.tree import Recipe
from posttrain.settings.demonstrations import demonstrations
from posttrain.stages import Stage

PARENT: Final = "sft"
SETTING: Final = "demonstrations"
PAPER: Final = "arXiv:2412.17256"
ROWS: Final = (194,)

ROUNDS: Final = 3
TEMPERATURES: Final = (0.5, 0.7, 0.9, 1.1, 1.2)


def b_star(recipe: Recipe | None = None) -> Recipe:
    """A change to SFT: rounds on own solutions, with the temperature and the threshold searched in each."""
    recipe = sft(recipe or demonstrations())
    stage = sft_of(recipe)
    verifier = recipe.evaluation.verifier
    if verifier is None:
        raise UserError(
            f"recipe '{recipe.name}' has no verifier to say which solutions are correct; give "
            "evaluation.verifier=match, or the reward of your tasks"
        )
    sampling = recipe.evaluation.sampling
    own = Balanced(
        reward=verifier,
        temperatures=TEMPERATURES,
        n=4,
        dev=100,
        target=2000,
        max_tokens=int(sampling.max_tokens) if sampling else 64,
    )
    stages: dict[str, Stage] = {}
    for name, other in recipe.stages.items():
        if other is stage:
            stages |= {f"{name}_{i + 1}": replace(stage, selection=own) for i in range(ROUNDS)}
        else:
            stages[name] = other
    return replace(recipe, name="b_star", stages=stages)
