r"""Per-step DPO: a correct solution against an incorrect one that is cut after the step where it was lost.

Source: Setlur et al. 2024, arXiv:2406.14532, sections 6 and 7. From the imitated model, which is also the reference:
about eight answers to each question; of an incorrect one the first pit is the step with the lowest Q, the first of
equals, Q being the probability that the best of five continuations of the prefix is correct; chosen is a whole correct
solution, a teacher's or its own.

    posttrain run per_step_dpo tasks=mine.jsonl model=FOLDER 'dpo.selection.pairing.delimiter="\n"'
    # columns: prompt, completion (a correct solution, a step a line), answer

The pit where Q falls most: `dpo.selection.pairing.pit=largest_drop`. Pairs with a shared prefix, whose tokens have no
gradient: `dpo.selection.pairing.shared=true`. Arbitrary pairs of whole answers, which is what it is compared with:
`dpo.selection.pairing={kind: extremes}`. Imitation of the model's own correct answers: `sft.selection.kind=sampled`.

Differs: beta and learning rates of the paper could not be read; beta is 0.1. The bundled model ends its steps with a
semicolon. One incorrect answer of a question is used (`dpo.selection.pairing.most`).

Measured here: on the default setting (5 seeds) held-out accuracy 49.7 % [44.7, 54.7] against 43.4 % [38.4, 48.4] with
pairs of the best and the worst whole answer, +6.3 points [-0.1, +12.7] (97.5 %), and 48.5 % with its own correct
solutions and as many pairs, +5.1 [-0.5, +10.7]: ahead, by no more than 5 seeds can show.

Answers with one fatal step of five (5 seeds of 1,000): five continuations of each prefix find it in
97.7 % where it is never recovered from, and in 75.6 % where a prefix after it is continued correctly with probability
.05; ten in 100 % and 59.9 % by the lowest Q, 99.8 % and 78.2 % by its largest fall; a step without effect has an
advantage of -.003 to -.001. A table policy (5 seeds, 100 steps, step size .01): probability of a correct answer .543
[.542, .544] with cut answers, .555 [.554, .555] with whole ones, .522 by imitation of the correct ones, .237 before:
pairs are ahead, and cutting does not show where a slip is the only mistake. The rate of a remark without effect, .9
before, stays .902 by imitation, and is .890 [.861, .919] and .874 [.835, .913] with pairs (docs/experiments.md).
"""

from dataclasses import replace
from typing import Final

from posttrain.components.pairings.first_pit import FirstPit
from posttrain.components.selections.paired import Paired
from posttrain.engines import Sampling
from posttrain.errors import UserError
from posttrain.methods.preference.sft_dpo import sft_dpo
from posttrain.recipes.changes import preference_of, with_stage
from posttrain.recipes.tree import Recipe
from posttrain.settings.stepwise_sums import stepwise_sums

PARENT: Final = "sft_dpo"
SETTING: Final = "stepwise_sums"
PAPER: Final = "arXiv:2406.14532"
ROWS: Final = (241,)

DELIMITER: Final = ";"
"""What ends a step of the bundled model's solutions."""


def per_step_dpo(recipe: Recipe | None = None) -> Recipe:
    """A change to SFT then DPO: pairs are of the model's own incorrect answers, each cut after its first pit."""
    recipe = sft_dpo(recipe or stepwise_sums())
    verifier = recipe.evaluation.verifier
    if verifier is None:
        raise UserError(
            f"recipe '{recipe.name}' has no verifier to say which answers are correct; give evaluation.verifier=match, "
            "or the reward of your tasks"
        )
    stage = preference_of(recipe)
    sampling = recipe.evaluation.sampling or Sampling(max_tokens=64)
    pit = FirstPit(delimiter=DELIMITER, sampling=replace(sampling, temperature=1.0))
    own = Paired(pairing=pit, reward=verifier, n=8, max_tokens=sampling.max_tokens, skip=stage.skip)
    return with_stage(replace(recipe, name="per_step_dpo"), replace(stage, selection=own, skip=0))
