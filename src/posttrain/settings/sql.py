"""SQL: a new model answers questions about small tables by queries, and is rewarded for the expected rows.

Questions and tables are generated. The model first imitates a plan as reasoning and the query after it;
``tasks.reasoned=false`` leaves the reasoning out.
"""

from dataclasses import replace
from typing import Final

from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.rewards.sql import SQL
from posttrain.components.rollouts.independent import Independent
from posttrain.components.shapes.decoder import Decoder
from posttrain.components.tasks.queries import QUESTIONS, TABLES, TESTS, Queries
from posttrain.engines import Sampling
from posttrain.evaluation.settings import Evaluation
from posttrain.models import Model
from posttrain.recipes.changes import rl_of, sft_of
from posttrain.recipes.tree import Recipe
from posttrain.settings.arithmetic import arithmetic
from posttrain.settings.demonstrations import demonstrations

WORDS: Final = (
    *("<reasoning>", "</reasoning>\n<answer>\n```sql\n", "\n```\n</answer>", "): ", ", ", "?\n", " with ", " and "),
    *("SELECT ", "COUNT(*)", "MAX(", "MIN(", " FROM ", " WHERE ", " where ", " AND ", *TABLES, *TESTS),
    *(*(begin.removesuffix("{}") for begin in QUESTIONS), *(plan.removesuffix("{}") for _, plan in QUESTIONS.values())),
    *(*(column for columns in TABLES.values() for column in columns), *(f"{number}" for number in range(61))),
)
"""One token each, so that an answer is short."""


def sql() -> Recipe:
    """A new decoder, almost two epochs of imitation, then 20 steps of 16 questions with 8 answers each."""
    recipe = arithmetic()
    imitation = sft_of(demonstrations())
    imitation = replace(imitation, epochs=1.8, learner=replace(imitation.learner, optimizer=AdamW(lr=3e-3)))
    stage = rl_of(recipe)
    stage = replace(
        stage,
        steps=20,
        prompts=16,
        rollout=Independent(n=8, sampling=Sampling(max_tokens=64)),
        reward=SQL(),
        learner=replace(stage.learner, optimizer=AdamW(lr=5e-5)),
    )
    return replace(
        recipe,
        name="sql",
        models={
            "policy": Model(source="new", shape=Decoder(layers=2, width=128, context=128, words=WORDS), trained=True)
        },
        tasks=Queries(size=4000),
        stages={"sft": imitation, "rl": stage},
        evaluation=Evaluation(verifier=SQL(), holdout=60),
    )
