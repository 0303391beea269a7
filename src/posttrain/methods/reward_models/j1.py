"""J1: a judge that imitates reflective thoughts, is reinforced for right verdicts, and is made to think on.

Source: "J1: Simple Test-Time Scaling for LLM-as-a-Judge", arXiv:2505.11875; the abstract and a model card were read.
After imitation of thoughts with a reflection, REINFORCE++ over the whole batch (no groups) rewards a reply whose only
verdict after the thinking is the label with 1, any other and one that is cut with 0 (`rewards/right_verdict`, parser
``after_thinking``). Held-out items are answered with budget forcing (`rollouts/waiting`): where the thinking would end,
a wait string stands in its place, `evaluation.rollout.waits` times.

    posttrain run j1 tasks.tasks=pairs.jsonl    # columns: prompt, chosen, rejected, thought

`evaluation.rollout.waits=0` is plain decoding. Items in both orders (``tasks.order=both``) show whether a verdict is
right in both.

`CHANGES`: the rollout of the evaluation is what the method adds.

Differs: the reward's values, the wait string and the number of waits are not published. Thoughts are the data's, where
the authors have theirs by rejection sampling.

Measured here, on a tabular judge that repeats, looks again or ends (5 seeds; `docs/experiments/rechecks.py`): with 0,
1, 2 and 4 waits an imitating judge has 0.691 [0.687, 0.695], 0.709, 0.725 and 0.753 [0.747, 0.758], and one after
REINFORCE++ 0.800 [0.794, 0.806], 0.826, 0.833 and 0.838 [0.834, 0.841]: waits help both, and the imitating one more, so
that the paper's finding, a rise after reinforcement only, does not show. Two waits turn 5.3 % of the verdicts right and
2.0 % wrong after reinforcement, 7.6 % and 4.2 % before it. A majority of three has 0.862 [0.853, 0.872] for twice the
looks. One seed only, the default setting, with one wait: held-out verdicts are right in 71.5 % [64.9, 77.3] after
imitation and 80.0 % [73.9, 85.0] at the end.
"""

from dataclasses import replace
from typing import Final

from posttrain.components.rewards.right_verdict import RightVerdict
from posttrain.components.rollouts.waiting import Waiting
from posttrain.methods.policy_gradient.reinforce_plus_plus import reinforce_plus_plus
from posttrain.recipes.changes import keep_verifier, rl_of, sampling_of, with_stage
from posttrain.recipes.tree import Recipe
from posttrain.settings.reflected_sums import reflected_sums

PARENT: Final = "reinforce_plus_plus"
SETTING: Final = "reflected_sums"
PAPER: Final = "arXiv:2505.11875"
ROWS: Final = (270,)
CHANGES: Final = ("evaluation.rollout",)


def j1(recipe: Recipe | None = None) -> Recipe:
    """A change to REINFORCE++: one verdict after the thinking is rewarded, and held-out thinking goes on."""
    recipe = keep_verifier(reinforce_plus_plus(recipe or reflected_sums()))
    stage, held_out = rl_of(recipe), recipe.evaluation.rollout
    sampling = sampling_of(stage)
    plain = Waiting(n=1, sampling=sampling, answer_tokens=sampling.max_tokens)
    forced = replace(held_out if isinstance(held_out, Waiting) else plain, waits=1)
    recipe = replace(recipe, name="j1", evaluation=replace(recipe.evaluation, rollout=forced))
    return with_stage(recipe, replace(stage, reward=RightVerdict(parser="after_thinking")))
