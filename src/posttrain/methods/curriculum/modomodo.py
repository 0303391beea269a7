r"""MoDoMoDo: GRPO on a mixture of domains, each with its own reward, in shares that earlier runs propose.

Source: arXiv:2505.24871, section 3 and algorithms 1 to 4. A mixture is drawn from by domain, and then without
replacement. Runs with each domain alone, with all but one, and with all are scored on held-out tasks; from these shares
are proposed by credit (`alpha`, `coli`, `norm`) or by a quadratic surface, and the next run has them. Six rollouts of a
task, KL 0.04, every group.

    posttrain run modomodo tasks=mine.jsonl curriculum.shares='{charts: 1, maps: 2}' \\
        reward='{kind: routed, parts: {charts: match, maps: boxes}}'    # columns: prompt, answer, domain
    posttrain diagnose mixture runs/modomodo-*    # proposes shares for the next run, by every rule

Without shares all domains are alike ("All"). The paper's largest gain is that of `norm`; the surface's best run is
slightly below it, with a higher median.

`CHANGES`: six rollouts of a task, as published.

Differs: a domain that is used up begins again, and is counted, where the paper ends training. The pictures of the
setting are words: its five domains are sums and exercises.

Measured here: a known quadratic score with noise, 200 mixtures for each of 5 seeds (`docs/experiments/mixtures.py`):
the surface's maximum is within .05 of the best mixture of three domains in 19 % of the cases after 6 runs and in 98.5 %
[97.4, 99.6] after 12; of five domains in 3 % after 15 and 70 % [67, 74] after 25, with a score of .998, where equal
shares have .962, `norm` .991 and `coli` .999. At the least number of runs it is below equal shares (.921 against .962).
A linear fit proposes a corner (.37). Mixtures of the setting itself were not searched (docs/experiments.md).
"""

from dataclasses import replace
from typing import Any, Final

from posttrain.components.curricula.by_share import ByShare
from posttrain.components.penalties.kl import KL
from posttrain.methods.policy_gradient.grpo import grpo
from posttrain.models import Model
from posttrain.recipes.changes import every_group, rl_of, with_models, with_stage
from posttrain.recipes.tree import Recipe
from posttrain.settings.several_kinds import several_kinds

PARENT: Final = "grpo"
SETTING: Final = "several_kinds"
PAPER: Final = "arXiv:2505.24871"
ROWS: Final = (18,)
CHANGES: Final = ("rollout.n",)

ROLLOUTS: Final = 6


def modomodo(recipe: Recipe | None = None) -> Recipe:
    """A change to GRPO: domains in shares of their own, and a KL to the initial policy."""
    recipe = grpo(recipe or several_kinds())
    stage = rl_of(recipe)
    rollout: Any = stage.rollout
    stage = replace(
        stage,
        curriculum=ByShare(),
        rollout=replace(rollout, n=ROLLOUTS) if hasattr(rollout, "n") else rollout,
        filters=every_group(stage),
        penalties={**stage.penalties, "kl": KL()},
    )
    recipe = with_models(replace(recipe, name="modomodo"), {"reference": Model(source="role:policy")})
    return with_stage(recipe, stage)
