"""Master-RM: a verifier that also learns that first sentences of answers, which only begin, are a NO.

Source: "One Token to Fool LLM-as-a-Judge", arXiv:2507.08794, from two notes on it; neither code nor data were opened.
The loss is that of SFT; the change is in the data (`tasks/first_sentences`): to the items of a verifier, question,
reference answer and response, an eighth as many are added whose response is the first sentence of a new answer.

    posttrain run master_rm tasks.tasks.tasks=mine.jsonl    # columns: prompt, answer, completion, rating (1 or 0), and
    # worked: another answer to the prompt, of which the first sentence is taken

The share of false positives of each of the ten keys is 1 less the accuracy in its domain, in `accuracy_by_domain` of
the evaluation (``evaluation.tasks.keys``; the published sets have at least 200 items). A verifier whose worst key is
accepted in more than 5 % of the cases should not reward a policy.

`CHANGES`: the tasks are what the method adds to.

Differs: first sentences that are the whole answer or contain the reference answer are skipped; there they are a NO. New
answers are the data's, where the authors have them from GPT-4o-mini.

Measured here, on a logistic verifier of responses whose openers go with right ones (10 seeds;
`docs/experiments/opener_verifier.py`): an opener alone is accepted with 0.856 [0.842, 0.869] before and 0.029 [0.029,
0.030] with first sentences; accuracy 0.949 and recall 0.951 are the same. A policy of two actions, an opener or an
answer that is right with 0.3 at the start, writes openers with 0.606 [0.351, 0.861] in the end where these are accepted
with 0.9 (some seeds collapse, others do not), and with 0.004 [0.003, 0.004] where with 0.03. The published collapse,
and rates of up to 95 %, are of models a thousand times larger.
"""

from dataclasses import replace
from typing import Final

from posttrain.components.tasks.first_sentences import FirstSentences
from posttrain.methods.sft_rl.sft import sft
from posttrain.recipes.tree import Recipe
from posttrain.settings.verified_answers import verified_answers

PARENT: Final = "sft"
SETTING: Final = "verified_answers"
PAPER: Final = "arXiv:2507.08794"
ROWS: Final = (295,)
CHANGES: Final = ("tasks",)


def master_rm(recipe: Recipe | None = None) -> Recipe:
    """A change to SFT: first sentences of answers among the verifier's items, as a NO."""
    recipe = sft(recipe or verified_answers())
    return replace(recipe, name="master_rm", tasks=FirstSentences(tasks=recipe.tasks))
