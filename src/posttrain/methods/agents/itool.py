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

Measured here (five seeds, one warm-up each, 300 other requests): pairs do not help the small model of the setting. The
warm-up answers 65 % of them; within seeds, imitation of all references for 60 steps adds 15.4 points [5.0, 25.8],
imitation of the hardest 3.2 [-21.0, 27.5] and on the hard part 39.8 [10.6, 68.9], three rounds of pairs of whole
answers -1.0 [-3.5, 1.4], of fragments -3.0 [-11.1, 5.1], and of fragments by DPO in place of SimPO -3.4 [-12.7, 5.9].
So the expected order, fragments before whole answers before imitation, is not seen. The miner is not the cause: a
request that fails has a less likely reference than one that is solved with probability 0.96 [0.94, 0.99]. The default
run answers 0 % of 200 held-out requests at first, 74.5 % after imitation, and 70 % after the rounds
(docs/experiments.md).

With the released bounds most pairs are poor (one seed): of 191 pairs 9 % prefer a fragment of the reference to another
one, 13 % do the opposite, and in 78 % both are wrong; with those of this recipe 61 %, 0 % and 39 % of 28 pairs.
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
ROWS: Final = (322,)
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
