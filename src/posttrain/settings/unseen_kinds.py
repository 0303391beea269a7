"""Unseen kinds: training on sums and sortings, evaluation on these and on kinds that are never trained on.

What a stage gains on the trained kinds and loses on the others shows in every evaluation (`accuracy_by_domain`,
`posttrain stages`). Most tasks have a bare answer and no solution, which a reward model of solutions ranks low: its
audit only measures.
"""

from dataclasses import replace

from posttrain.components.rewards.match import Match
from posttrain.components.rewards.routed import Routed
from posttrain.components.rollouts.independent import Independent
from posttrain.components.tasks import Tasks
from posttrain.components.tasks.mixture import Mixture
from posttrain.engines import Sampling
from posttrain.evaluation.settings import Evaluation
from posttrain.recipes.changes import rl_of, with_stage
from posttrain.recipes.tree import Recipe
from posttrain.settings.several_kinds import VERIFIERS, of_kinds, several_kinds
from posttrain.stages.rl.reward_audit import MEASURED

TRAINED = ("sums", "sort")
SHOWN = 80
"""Tasks of each trained kind that have a demonstration."""


def unseen_kinds() -> Recipe:
    """24 steps on two kinds, a few of which are demonstrated, and a test set of five."""
    recipe = several_kinds()
    shown, bare = of_kinds(seed=0, size=SHOWN), of_kinds(seed=2, size=900, demonstrate=False)
    sources: dict[str, Tasks] = {name: Mixture(sources={"shown": shown[name], "bare": bare[name]}) for name in TRAINED}
    reward = Routed(parts={name: VERIFIERS[name] for name in TRAINED})
    stage = replace(
        rl_of(recipe),
        steps=24,
        rollout=Independent(n=4, sampling=Sampling(max_tokens=64)),
        reward=reward,
        audit=MEASURED,
    )
    return replace(
        with_stage(recipe, stage),
        name="unseen_kinds",
        tasks=Mixture(sources=sources, domains="source"),
        evaluation=Evaluation(
            tasks=Mixture(sources=of_kinds(seed=1, size=60), domains="source"),
            holdout=300,
            verifier=Routed(parts=VERIFIERS, other=Match()),
        ),
    )
