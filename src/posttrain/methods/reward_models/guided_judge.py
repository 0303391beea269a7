r"""A judge that is optimised as text: rules against a generator that tries to fool it and by its errors, then GRPO.

Source: path B of Igniting Creative Writing in Small Language Models, arXiv:2508.21476, and its release (992c2287). Two
lists of at most ten rules, of a generator of subtly bad texts and of a detector, are rewritten by one another's
success and by errors on labelled texts (`selections/optimized_rules`); no weights change. The final rules are the
judge's, and GRPO is rewarded with 1 for Good and 0 for Bad (`rewards/by_rules`). Path A is `refined_preferences`.

    posttrain run guided_judge tasks=mine.jsonl models.judge.source=http://HOST/v1 rl.selection.role=judge \
        rl.reward.role=judge rl.selection.lists='{writing: [...], detecting: [...]}'
    # columns: prompt; for reflection and the gate: completion, label (0 or 1)

Differs: a new list must judge as many held-out texts right as the old one, a gate of ours (``held_out=0`` takes every
list); ten rounds, the release's demonstration has five. A judge without a readable verdict is an error, and not 0. The
agents of the default are code for greetings, which know them in part (`posttrain.datasets.rule_agents`), since no
bundled model follows instructions. Sizes and learning rates are the setting's, and GRPO is without the small KL loss.

Measured here (``python docs/experiments/refined_judges.py --seeds 5 --runs``, agents by code; rules over 100 seeds):
after ten rounds all rare faults have a rule in all but one seed of 100, and .04 [.02, .06] of the harmless words.
Without the adversarial phase no rare fault has a rule; without reflection two of three harmless words keep theirs.
Where 40 % of the rewritings are faulty, .11 [.08, .14] of the harmless words have a rule with the gate and .30
[.24, .36] without it, a difference of .19 [.13, .25]. Policies, the default run over five seeds: by the
first rules no greeting of 100 held out is good in any seed, while the judge calls all good; by rules without the
adversarial phase 5.4 % [-8.2, 19.0]; by optimised rules 100 % in all seeds, as the judge has it.
"""

from dataclasses import replace
from typing import Final

from posttrain.components.rewards.by_rules import ByRules
from posttrain.components.selections.optimized_rules import OptimizedRules
from posttrain.methods.policy_gradient.grpo import grpo
from posttrain.recipes.changes import keep_verifier, rl_of, with_stage
from posttrain.recipes.tree import Recipe
from posttrain.settings.greetings import greetings

PARENT: Final = "grpo"
SETTING: Final = "greetings"
PAPER: Final = "arXiv:2508.21476"
ROWS: Final = (273,)


def guided_judge(recipe: Recipe | None = None) -> Recipe:
    """A change to GRPO: the rules of the judge are optimised before the reinforcement, and reward it."""
    recipe = keep_verifier(grpo(recipe or greetings()))
    stage = rl_of(recipe)
    changed = replace(stage, selection=OptimizedRules(rounds=10), reward=ByRules())
    return with_stage(replace(recipe, name="guided_judge"), changed)
