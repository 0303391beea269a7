"""Limited kinds: sums and copied words, each with constraints of its own beside the reward for the right answer.

A sum must be answered in at most 36 characters, which the solutions of a part of them exceed; a copy must be one line.
A right answer has the reward 4, so that sigmoid(r - 4) is 0.5 for it and 0.018 for others, where 4 is that of the
demonstration. An answer counts if it is right and keeps its constraint.
"""

from dataclasses import replace

from posttrain.components.filters.zero_variance import ZeroVariance
from posttrain.components.rewards import Reward
from posttrain.components.rewards.constraints import Constraints
from posttrain.components.rewards.gated import Gated
from posttrain.components.rewards.match import Match
from posttrain.components.rewards.regex import Regex
from posttrain.components.rewards.routed import Routed
from posttrain.components.tasks.mixture import Mixture
from posttrain.evaluation.settings import Evaluation
from posttrain.recipes.changes import rl_of
from posttrain.recipes.tree import Recipe
from posttrain.settings.several_kinds import of_kinds, several_kinds

LIMITS: dict[str, Reward] = {
    "sums": Regex(pattern=r"(?s)^.{1,36}$"),
    "copy": Regex(pattern=r"^[^\n]+\n?$"),
}
RIGHT: dict[str, Reward] = {
    "sums": Match(numeric="always", right=4.0),
    "copy": Match(numeric="never", extract=("last_line",), right=4.0),
}


def limited_kinds() -> Recipe:
    """40 steps of 16 tasks with 4 rollouts each."""
    recipe = several_kinds()
    answers, limits = Routed(parts=RIGHT), Routed(parts=LIMITS)
    reward = Constraints(of=answers, constraints={"limits": limits})
    stage = replace(rl_of(recipe), steps=40, reward=reward, filters={"zero_variance": ZeroVariance()})
    sources = {name: source for name, source in of_kinds(seed=0, size=400).items() if name in LIMITS}
    return replace(
        recipe,
        name="limited_kinds",
        tasks=Mixture(sources=sources, domains="source"),
        stages={"rl": stage},
        evaluation=Evaluation(verifier=Gated(reward=answers, gate={"limits": limits}), holdout=200),
    )
