"""iTool: rounds of pairs of fragments of tool calls, searched where the policy finds the reference least likely.

Source: arXiv:2501.09766 (EMNLP 2025), and its released code (yirong-zeng/iTool at 871eceb). After imitation from easy
to hard, each round measures the perplexity of the references and keeps the 30 % of the highest, of those with a call
and of those without; searches a tree of fragments for each (`pairings/fragments`); and trains on at most 4,000 pairs
of siblings by SimPO with beta 2.5 and a margin of .5 within beta, 2 epochs. The next round begins with the new weights;
old pairs are not used again.

    posttrain run itool setting=tool_rounds model=FOLDER tasks=mine.jsonl    # columns: prompt, completion, answer
    # stages of imitation: easy.tasks=easy.jsonl hard.tasks=hard.jsonl

``round_1.selection.then.pairing.judge={role: policy}`` grades by the model itself, as the release does; here it is the
verifier, since a small model is no judge.

Differs: three rounds, the default of the released class; its script has one. All weights are trained, where the release
trains LoRA of rank 8. Requests are JSON, so that cuts are at its separators. A pair differs by .5 and its better
fragment has .25 at least, with ten simulations at temperature 1: see below. How the paper orders its imitation is not
known; here by the number of parameters.

No row is claimed: pairs do not help the small model of the setting. One seed (``python
docs/experiments/tool_fragments.py``), 300 other requests and the 30 % of them that the warm-up finds least likely: 75 %
and 28 % right after the warm-up; 97 % and 92 % after 60 steps on all references, 94 % and 92 % on the hardest of them;
71 % and 26 % after three rounds of pairs of whole answers; 70 % and 26 % after three of fragments, 60 % and 13 % with
the released bounds, 65 % and 21 % at three times the learning rate. With the released bounds most pairs are poor: of
191 pairs 9 % prefer a fragment of the reference to another one, 13 % do the opposite, and in 78 % both are wrong; with
those of this recipe 61 %, 0 % and 39 % of 28 pairs.
"""

from dataclasses import replace
from typing import Final

from posttrain.components.pairings.fragments import Cuts, Fragments, Growth
from posttrain.components.preferences.simpo import SimPO
from posttrain.components.selections.hardest import Hardest
from posttrain.components.selections.paired import Paired
from posttrain.engines import Sampling
from posttrain.errors import UserError
from posttrain.methods.preference.simpo import simpo
from posttrain.recipes.changes import preference_of
from posttrain.recipes.tree import Recipe
from posttrain.settings.tool_rounds import tool_rounds

PARENT: Final = "simpo"
SETTING: Final = "tool_rounds"
PAPER: Final = "arXiv:2501.09766"
ROWS: Final = ()
ROUNDS: Final = 3
PAIRS: Final = 4000
CUTS: Final = Cuts(after=('": {', ", "), closing="}}")
"""After the name of a call in JSON, and after each of its parameters."""
BETA: Final = 2.5
MARGIN: Final = 0.5
"""Of SimPO, before it is multiplied by beta."""


def itool(recipe: Recipe | None = None) -> Recipe:
    """A change to SimPO: rounds of pairs that a search makes of the model's own fragments, where it is unsure."""
    recipe = simpo(recipe or tool_rounds())
    verifier = recipe.evaluation.verifier
    if verifier is None:
        raise UserError(
            f"recipe '{recipe.name}' has no verifier to grade answers by; give evaluation.verifier=match, or the "
            "reward of your tasks"
        )
    stage = preference_of(recipe)
    longest = (recipe.evaluation.sampling or Sampling(max_tokens=50)).max_tokens
    fragments = Fragments(
        growth=Growth(simulations=10), cuts=CUTS, gap=0.5, least=0.25, sampling=Sampling(max_tokens=longest)
    )
    pairs = Hardest(marker="{", then=Paired(pairing=fragments, reward=verifier, n=1))
    rounds = replace(stage, loss=SimPO(beta=BETA, gamma=BETA * MARGIN), selection=pairs, limit=PAIRS, skip=0)
    before = {name: own for name, own in recipe.stages.items() if own is not stage}
    return replace(recipe, name="itool", stages={**before, **{f"round_{i + 1}": rounds for i in range(ROUNDS)}})
