"""Think2SQL: GRPO for reasoning text-to-SQL, rewarded by the rows that the query returns.

Source: Papicchio et al. 2025, arXiv:2504.15077: execution accuracy, with cell precision, cell recall and cardinality
for partially correct queries, after SFT on reasoning traces. From its release (github.com/spapicchio/Think2SQL,
104fd26): weight 0.85 for execution and 0.15 for format, advantages scaled by the std of the batch, clip 0.2 and 0.28,
no KL.

    posttrain run think2sql tasks=mine.jsonl "models.policy={source: FOLDER, trained: true}"
    # columns: question, schema (a script that makes the database), answer (the reference query) or rows,
    #          completion (an answer to imitate: <reasoning>...</reasoning><answer>...</answer>)

The grid of the paper: ``tasks.reasoned=false`` is SFT on queries without traces, ``reward.parts.rows.partial=0``
rewards execution accuracy alone, and ``sft.max_steps`` and ``rl.steps`` are the lengths of the two stages.

Differs: the cap of a partially correct query's reward at half of a correct one's is ours. Ratios are per token, where
the release has one per sequence.
"""

from dataclasses import replace
from typing import Final

from posttrain.components.advantages.group_mean import GroupMean
from posttrain.components.objectives.ppo_clip import PPOClip
from posttrain.components.rewards.format import Format
from posttrain.components.rewards.sql import SQL
from posttrain.components.rewards.sum import Sum
from posttrain.methods.policy_gradient.grpo import with_rl
from posttrain.recipes.changes import keep_verifier, rl_of, with_stage
from posttrain.recipes.tree import Recipe
from posttrain.settings.sql import sql

PARENT: Final = "grpo"
SETTING: Final = "sql"
PAPER: Final = "arXiv:2504.15077"
ROWS: Final = (246,)
INHERITED: Final = {"objective": "a ratio a token; the release has one ratio a completion"}


def think2sql(recipe: Recipe | None = None) -> Recipe:
    """A change to GRPO: partial rewards for rows, a format reward, and advantages scaled by the batch's std."""
    recipe = keep_verifier(with_rl(recipe or sql()))
    stage = rl_of(recipe)
    rows = stage.reward if isinstance(stage.reward, SQL) else SQL()
    parts = {"rows": replace(rows, partial=0.5), "form": Format(tags=("reasoning", "answer"))}
    stage = replace(
        stage,
        reward=Sum(parts=parts, weights={"rows": 0.85, "form": 0.15}),
        advantage=GroupMean(scale="batch"),
        objective=PPOClip(clip_high=0.28),
    )
    return with_stage(replace(recipe, name="think2sql"), stage)
