"""DDRO: generative retrieval by imitation, then DPO of the relevant identifier against bands of a keyword ranking.

Source: Mekonnen et al. 2025, arXiv:2504.05181 (kidist-amde/ddro at cd5d1f77): identifiers are product-quantized codes;
imitation of identifiers after documents, pseudo-queries and queries; then one positive of each query against 10, 10 and
12 negatives of the ranks to 100, 500 and 1,000 of BM25, with sums of log-probabilities of the full vocabulary, beta
0.4, and the imitated model as the reference. The trie of identifiers is used for retrieval only.

    posttrain run ddro tasks=mine.jsonl model=FOLDER documents.tasks=documents.jsonl pseudo_queries.tasks=pseudo.jsonl
    # mine.jsonl: prompt (a query), completion (its identifier), ranked (identifiers by BM25, the best first)
    # documents.jsonl, pseudo.jsonl: prompt, completion
    posttrain diagnose retrieval runs/ddro-1 tasks=queries.jsonl

Negatives of all ranks alike are the setting `retrieval` itself: `posttrain run sft_dpo setting=retrieval`. Bands are
`dpo.selection.pairing.ends` and `.counts`; where the setting has one band, the paper's shares of it: a tenth, a half
and all of the ranks.

Differs: sizes, rates and stopping are the setting's. The released script passes the reference under a name that its
trainer lacks and cannot run.

Measured here (docs/experiments/retrieval_tables.py: a table of words and codes, five corpora, 500 new queries): MRR@10
is .747 [.721, .772] after imitation; DPO adds .013 [.006, .021] with three bands, .015 [.008, .022] with all ranks
alike and .004 [-.005, .013] with the first ranks alone, so that bands are no better at this size. Recall@20 stays at
.999; log pi(d+) falls from -3.25 to -3.64, and in 36 % of the pairs the relevant identifier loses probability; the trie
puts another identifier first for 36 % of the queries, 35 % before. One run of the default setting (100 new queries):
.553 after imitation, .573 after DPO, where log pi(d+) falls from -2.87 to -3.45.
"""

from dataclasses import replace
from typing import Final

from posttrain.components.pairings.bands import Bands
from posttrain.components.preferences.dpo import DPO
from posttrain.components.rewards.match import Match
from posttrain.components.selections.paired import Paired
from posttrain.methods.preference.sft_dpo import sft_dpo
from posttrain.recipes.changes import preference_of, with_stage
from posttrain.recipes.tree import Recipe
from posttrain.settings.retrieval import retrieval

PARENT: Final = "sft_dpo"
SETTING: Final = "retrieval"
PAPER: Final = "arXiv:2504.05181"
ROWS: Final = (51,)


def ddro(recipe: Recipe | None = None) -> Recipe:
    """A change to SFT then DPO: negatives are of bands of a ranking; beta 0.4."""
    recipe = sft_dpo(recipe or retrieval())
    stage = preference_of(recipe)
    given = stage.selection if isinstance(stage.selection, Paired) else None
    rule = given.pairing if given is not None and isinstance(given.pairing, Bands) else Bands()
    reward = recipe.evaluation.verifier or Match(extract=("whole",))
    own = given or Paired(pairing=rule, reward=reward, skip=stage.skip)
    stage = replace(stage, loss=DPO(beta=0.4), selection=replace(own, pairing=in_bands(rule)), skip=0)
    return with_stage(replace(recipe, name="ddro"), stage)


def in_bands(rule: Bands) -> Bands:
    """The rule in the paper's three bands, where it has one."""
    if len(rule.ends) > 1:
        return rule
    last, total = rule.ends[0], rule.counts[0]
    ends = (max(1, round(0.1 * last)), max(2, round(0.5 * last)), max(3, last))
    first = round(total * 10 / 32)
    return replace(rule, ends=ends, counts=(first, first, total - 2 * first))
