"""Think2SQL: reason about a table, then query it; paid by the rows that the query gives.

Source: Papicchio et al. 2025, arXiv:2504.15077: execution accuracy, with cell precision, cell recall and cardinality
for queries that are nearly right, after imitation of reasoning traces. Of its release
(github.com/spapicchio/Think2SQL, 104fd26): 0.85 of that and 0.15 of the form, advantages scaled by the deviation of
the batch, clip 0.2 and 0.28, no KL.

The grid of the paper: ``tasks.reasoned=false`` imitates queries without traces, ``reward.parts.rows.partial=0`` pays
for execution accuracy alone, and ``sft.max_steps`` and ``rl.steps`` are how much of either.

Differs: the half that nearly right queries are paid is ours; ratios are of tokens, where the release has one a
sequence. Questions and tables are generated, and so is the model, which first imitates; sizes are for it.
"""

from dataclasses import replace
from typing import Final

from posttrain.components.advantages.group_mean import GroupMean
from posttrain.components.objectives.ppo_clip import PPOClip
from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.rewards.format import Format
from posttrain.components.rewards.sql import SQL
from posttrain.components.rewards.sum import Sum
from posttrain.components.rollouts.independent import Independent
from posttrain.components.shapes.decoder import Decoder
from posttrain.components.tasks.queries import ASKED, TABLES, TESTS, Queries
from posttrain.engines import Sampling
from posttrain.evaluation.settings import Evaluation
from posttrain.methods.policy_gradient.grpo import grpo
from posttrain.methods.sft_rl.sft import sft
from posttrain.models import Model
from posttrain.recipe.changes import rl_of, sft_of
from posttrain.recipe.tree import Recipe

ROWS: Final = (246,)

WORDS: Final = (
    *("<reasoning>", "</reasoning>\n<answer>\n```sql\n", "\n```\n</answer>", "): ", ", ", "?\n", " with ", " and "),
    *("SELECT ", "COUNT(*)", "MAX(", "MIN(", " FROM ", " WHERE ", " where ", " AND ", *TABLES, *TESTS),
    *(*(begin.removesuffix("{}") for begin in ASKED), *(plan.removesuffix("{}") for _, plan in ASKED.values())),
    *(*(column for columns in TABLES.values() for column in columns), *(f"{number}" for number in range(61))),
)
"""One token each, so that an answer is short."""


def think2sql(recipe: Recipe | None = None) -> Recipe:
    """A change to GRPO: questions about tables, judged by running the query and by the form, after imitation."""
    recipe = recipe or grpo()
    imitation = sft_of(sft())
    imitation = replace(imitation, epochs=1.8, learner=replace(imitation.learner, optimizer=AdamW(lr=3e-3)))
    parts = {"rows": SQL(partial=0.5), "form": Format(tags=("reasoning", "answer"))}
    stage = rl_of(recipe)
    stage = replace(
        stage,
        steps=20,
        prompts=16,
        rollout=Independent(n=8, sampling=Sampling(max_tokens=64)),
        reward=Sum(parts=parts, weights={"rows": 0.85, "form": 0.15}),
        advantage=GroupMean(scale="batch"),
        objective=PPOClip(clip_high=0.28),
        learner=replace(stage.learner, optimizer=AdamW(lr=5e-5)),
    )
    shape = Decoder(layers=2, width=128, context=128, words=WORDS)
    changed = replace(
        recipe,
        name="think2sql",
        tasks=Queries(size=4000),
        stages={"sft": imitation, "rl": stage},
        evaluation=Evaluation(verifier=SQL(), holdout=60),
    )
    return replace(changed, models={**changed.models, "policy": Model(source="new", shape=shape, trained=True)})
