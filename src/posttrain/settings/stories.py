"""Stories: a new model of 140,000 weights answers questions about the order of events, in one of three styles.

It first imitates the styles; half of the demonstrations have the right answer. Held-out questions count as correct if
form and answer are. A second test set has the same questions after shuffled stories.
"""

from dataclasses import replace

from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.rewards.levels import Levels
from posttrain.components.rewards.match import Match
from posttrain.components.rewards.regex import Regex
from posttrain.components.rewards.sum import Sum
from posttrain.components.rollouts.independent import Independent
from posttrain.components.shapes.decoder import Decoder
from posttrain.components.tasks.stories import STYLES, WORDS, Stories
from posttrain.engines import Sampling
from posttrain.evaluation.settings import Evaluation
from posttrain.models import Model
from posttrain.recipes.changes import rl_of, sft_of
from posttrain.recipes.tree import Recipe
from posttrain.settings.arithmetic import arithmetic
from posttrain.settings.demonstrations import demonstrations
from posttrain.training.settings import Learning


def stories() -> Recipe:
    """A new decoder, four epochs of imitation, then 80 steps of 16 stories with 8 answers each."""
    recipe = arithmetic()
    imitation = replace(sft_of(demonstrations()), epochs=4.0, learner=Learning(optimizer=AdamW(lr=3e-3)))
    answer = Match(extract=("answer_tag",), numeric="never")
    parts = {
        "answer": Levels(correct=answer, right=2.0, wrong=-1.5, unreadable=-2.0),
        "form": Regex(pattern=STYLES, full=True, matched=1.0, unmatched=-1.0),
    }
    stage = replace(
        rl_of(recipe),
        steps=80,
        rollout=Independent(n=8, sampling=Sampling(max_tokens=24)),
        reward=Sum(parts=parts),
        learner=Learning(optimizer=AdamW(lr=1e-3)),
    )
    shape = Decoder(layers=2, width=64, mlp_width=192, words=WORDS)
    return replace(
        recipe,
        name="stories",
        models={"policy": Model(source="new", shape=shape, trained=True)},
        tasks=Stories(size=2000),
        stages={"sft": imitation, "rl": stage},
        evaluation=Evaluation(verifier=answer, holdout=300),
    )
