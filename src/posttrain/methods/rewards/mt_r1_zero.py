"""MT-R1-Zero: GRPO on translations, rewarded for the form of thoughts and answer and for BLEU, meaning, or both.

Source: arXiv:2504.10160 and its release (fzp0424/MT-R1-Zero at a2e38c4). A broken form has -3, an empty translation -1,
others 1 plus BLEU and a learned score of meaning, each in [0, 1] (`rewards/translated`). 8 rollouts of 8 prompts, no
KL, no entropy, one update a batch, every group.

    posttrain run mt_r1_zero tasks=mine.jsonl model=FOLDER
    # columns: prompt, answer (the reference), source, language (zh, ja, en, ...)
    posttrain run mt_r1_zero reward.measure=mix reward.semantic=comet models.comet.source=FOLDER tasks=mine.jsonl
    posttrain run mt_r1_zero reward.measure=mix 'reward.semantic={kind: semantic, against: source}' tasks=mine.jsonl

`comet` is a COMET model in a folder of yours; `semantic` is a small multilingual encoder; a function of your own,
`./mine.py:score`, gets the translation as the completion and the task, and returns 0 to 1.
`reward.discrete=true` adds 2 or -1.5 by thresholds.

Differs: the semantic score is 0 for a copy of the source. The model imitates a few demonstrations first, which is the
setting's, where the paper starts from a model that can translate.

Measured here, five seeds of a tabular translator of a cipher (`docs/experiments/translations.py`): nine forms in ten
are whole after 13.2 [11.2, 15.2] of 300 steps, and BLEU comes after that. It is 0.998 [0.997, 0.998] at the end with
BLEU and 0.998 [0.997, 0.999] with both; words in common whatever their order, a score of meaning that sees no order,
leave it at 0.594 [0.429, 0.759], with 0.973 [0.898, 1.048] of the words, where BLEU has 1.000: no measure but BLEU wins
here. From Spanish, with `semantic` beside the source (``--learned``, 150 steps), BLEU is 0.995 [0.994, 0.996] with
BLEU, 0.935 [0.781, 1.089] with meaning and 0.996 [0.995, 0.996] with both; likeness in meaning is 0.828 [0.824, 0.831],
0.814 [0.778, 0.851] and 0.828 [0.824, 0.832]: BLEU wins its own measure, meaning does not, both are as good as
BLEU. That a broken form loses 2 more makes no difference: rewards are divided by their standard deviation. One run of
the default learns the form, of 60 % of held-out translations after imitation and of 94 % after reinforcement, and no
BLEU (0.13 and 0.12 in the first and last ten of 40 steps).
"""

from dataclasses import replace
from typing import Final

from posttrain.components.rewards.translated import Translated
from posttrain.methods.policy_gradient.grpo import grpo
from posttrain.recipes.changes import every_group, keep_verifier, rl_of, with_stage
from posttrain.recipes.tree import Recipe
from posttrain.settings.ciphers import ciphers

PARENT: Final = "grpo"
SETTING: Final = "ciphers"
PAPER: Final = "arXiv:2504.10160"
ROWS: Final = (252,)


def mt_r1_zero(recipe: Recipe | None = None) -> Recipe:
    """A change to GRPO: the form and the measures of a translation as the reward, every group."""
    recipe = grpo(keep_verifier(recipe or ciphers()))
    stage = rl_of(recipe)
    reward = stage.reward if isinstance(stage.reward, Translated) else Translated()
    stage = replace(stage, reward=reward, filters=every_group(stage))
    return with_stage(replace(recipe, name="mt_r1_zero"), stage)
