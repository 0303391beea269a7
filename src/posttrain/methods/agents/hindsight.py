"""Hindsight regenerations: logged dialogues are written anew from better turns, and values are learned from all.

Source: arXiv:2411.05194, of which the abstract and the opening were read. The stage `hindsight` has its four models: a
controller that reads the finished dialogue, a forward model that completes it from a better turn, a reward, and the
policy. Then it imitates log and regenerated dialogues, and a critic learns from them as in ILQL (expectile .7, gamma
.99, conservative loss .25, slow copy .005, two heads of Q). The policy acts by its distribution times exp(4 (Q - V))
(`rollouts/by_values`), without hindsight.

    posttrain run hindsight setting=calls tasks=mine.jsonl model=FOLDER hindsight.simulator=null
    # columns: prompt, messages of an episode, rewards (a list with one number for each)

Differs: see `stages/hindsight`. All constants are ours. Here the forward model is the exact simulator of the donors;
without one, the role `forward` writes the partner's turns. The paper's evaluation by people is left out.

Measured here (500 logged calls of donors, 90 % of them with the wrong plea, 300 other donors at temperature 1, five
seeds): 11 % [7, 15] of the donors give after imitation of the log, 31 % [27, 35] after imitation of log and regenerated
calls, 30 % [18, 42] with values of the log, 78 % [62, 93] with values of all, so that both are needed; nine in ten are
not reached at this temperature. Two branches of each call in place of one: 82 % [66, 98]. A simulator that gives a
reward to 20 % of the failures: 75 % [57, 93]. No proposal quoted the future, and 4 % were the logged turn
(docs/experiments.md).

The default run, five seeds, greedily: none of 60 held-out donors before, 81 % [56, 106] after it, in half a minute;
the seeds have 97, 90, 48, 77 and 95 %.
"""

from dataclasses import replace
from typing import Final

from posttrain.components.rollouts.by_values import ByValues
from posttrain.components.rollouts.turns import Turns
from posttrain.errors import UserError
from posttrain.models import Model
from posttrain.recipes.changes import with_models
from posttrain.recipes.tree import Recipe
from posttrain.settings.calls import calls
from posttrain.stages.hierarchical import OUTPUTS
from posttrain.stages.hindsight import Hindsight

PARENT: Final = None
SETTING: Final = "calls"
PAPER: Final = "arXiv:2411.05194"
ROWS: Final = (94,)
CHANGES: Final = ("evaluation.rollout",)


def hindsight(recipe: Recipe | None = None) -> Recipe:
    """A change to imitation of a log: better turns in hindsight, and a policy that acts by values of all dialogues."""
    recipe = recipe or calls()
    stages = {
        name: replace(stage, branches=1, value_steps=300) if isinstance(stage, Hindsight) else stage
        for name, stage in recipe.stages.items()
    }
    if not any(isinstance(stage, Hindsight) for stage in stages.values()):
        raise UserError(
            f"recipe '{recipe.name}' has no stage of kind hindsight, which states how dialogues are completed and "
            "scored; begin with setting=calls and give it your log"
        )
    own, evaluation = recipe.models["policy"], recipe.evaluation
    critic = replace(own, head="reward", outputs=OUTPUTS)
    if critic.source != "new":
        critic = Model(source="role:policy", head="reward", outputs=OUTPUTS, trained=True)
    models = {"critic": critic, "target_critic": Model(source="role:critic", head="reward", outputs=OUTPUTS)}
    played = evaluation.rollout
    if isinstance(played, Turns):
        acting = ByValues(
            environment=played.environment, n=played.n, max_turns=played.max_turns, sampling=played.sampling
        )
        evaluation = replace(evaluation, rollout=acting)
    return with_models(replace(recipe, name="hindsight", stages=stages, evaluation=evaluation), models)
