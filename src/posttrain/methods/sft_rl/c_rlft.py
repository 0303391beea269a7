"""C-RLFT (OpenChat): imitation of sources of mixed quality, weighted and conditioned by the class of the source.

Source: Wang et al. 2023, arXiv:2309.11235, and its release: each row has the class of its source. Its word stands in
every role prefix, in training and in evaluation, where it is the expert's. The loss is sum(w CE) / sum(w) over the
tokens of the whole optimizer batch, with w = 1 for the expert's rows and 0.1 for others. It is the closed form of
KL-regularised RL with a reward for each class; in the paper w = exp(r / beta), which is `sft.weights={by_domain:
{expert: 1, other: 0.1}, beta: 1}`, a ratio of 2.5. `sft.weights.per=sequence` is the release's option for equal weights
of answers.

    posttrain run c_rlft tasks.tasks=mine.jsonl    # columns: prompt, completion, domain (expert or other), answer

Other names of sources: `'tasks.words={gpt4: GPT4, web: GPT3}' tasks.asked_as=gpt4 'sft.weights.by_domain={gpt4: 1, web:
0.1}'`. Prefixes of text prompts are `tasks.prefixes`.

`CHANGES`: the tasks are the same ones, with conditions.

Differs: rows longer than the context are refused; the release cuts them. Its schedule and its rate, which follows the
tokens of a batch, are the setting's.

Measured here: one epoch, 5 seeds, correct answers under the expert's condition and under the other's: SFT on everything
5.0 % (it answers as the wrong majority), weights alone 79.6 % (no condition: they make the expert the majority),
conditions alone 77.6 and 5.6 %, both 82.4 and 49.4 %, both with the ratio of 2.5 83.4 and 6.6 %. With weights of 10 to
1 the other condition is learned too little to hold the slip (docs/experiments.md).
"""

from dataclasses import replace
from typing import Final

from posttrain.components.objectives.policy_gradient import PolicyGradient
from posttrain.components.tasks.conditioned import Conditioned
from posttrain.methods.sft_rl.sft import sft
from posttrain.recipes.changes import sft_of, with_stage
from posttrain.recipes.tree import Recipe
from posttrain.settings.mixed_quality import mixed_quality
from posttrain.stages.weights import Weights

PARENT: Final = "sft"
SETTING: Final = "mixed_quality"
PAPER: Final = "arXiv:2309.11235"
ROWS: Final = (60,)
CHANGES: Final = ("tasks",)


def c_rlft(recipe: Recipe | None = None) -> Recipe:
    """A change to SFT: weights and conditions by the class of the source."""
    recipe = sft(recipe or mixed_quality())
    tasks = Conditioned(tasks=recipe.tasks, words={"expert": "Good", "other": "Poor"}, asked_as="expert")
    weights = Weights(by_domain={"expert": 1.0, "other": 0.1})
    stage = replace(sft_of(recipe), objective=PolicyGradient(), weights=weights)
    return with_stage(replace(recipe, name="c_rlft", tasks=tasks), stage)
