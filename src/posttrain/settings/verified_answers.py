"""Verified answers: the bundled model learns to say whether a response has the result of the reference answer.

In the training data openers of reasoning go with right responses (`tasks/answered_sums`). Held-out responses are right,
wrong, and the ten keys of arXiv:2507.08794, which have no content; `accuracy_by_domain` has each of them.
"""

from dataclasses import replace

from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.rewards.right_verdict import RightVerdict
from posttrain.components.tasks.answered_sums import AnsweredSums
from posttrain.components.tasks.verifier_items import KEYS, VerifierItems
from posttrain.evaluation.settings import Evaluation
from posttrain.recipes.changes import sft_of, with_stage
from posttrain.recipes.tree import Recipe
from posttrain.settings.demonstrations import demonstrations


def verified_answers() -> Recipe:
    """Two epochs of imitation on 2,000 items; 20 held-out sums with 12 responses each."""
    recipe = demonstrations()
    imitation = sft_of(recipe)
    learner = replace(imitation.learner, optimizer=AdamW(lr=1e-3))
    recipe = with_stage(recipe, replace(imitation, epochs=2.0, learner=learner))
    return replace(
        recipe,
        name="verified_answers",
        tasks=VerifierItems(tasks=AnsweredSums(size=1000)),
        evaluation=Evaluation(
            tasks=VerifierItems(tasks=AnsweredSums(size=20, seed=1), keys=KEYS),
            holdout=240,
            verifier=RightVerdict(parser="yes_no"),
        ),
    )
