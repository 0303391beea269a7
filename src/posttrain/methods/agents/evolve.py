"""EVOLvE: imitation of an oracle's whole episodes, so that the model explores by itself from its history.

Source: oracle behaviour fine-tuning, arXiv:2410.06238, and its release: -log pi(oracle's action | history), on action
tokens only. Episodes hold the whole learning phase of the oracle, UCB for bandits: what is imitated is how it learns,
not which arm it ends with.

    posttrain run evolve model=FOLDER sft.tasks.environment.kind=mine.py evaluation.rollout.environment.kind=mine.py

The environment is any with a player of its own (`Instance.solution`). Guidance in the prompt is
``history=guidance`` of the environment of both; summaries are ``summary``. How regret grows is fitted by
`posttrain.statistics.regret` (``python docs/experiments/bandit_regret.py``).

`CHANGES`: who plays the episodes.

Differs: examples in the prompt, which need no training, are left out, and so are contextual bandits. Horizon 50 in
place of 300 and more.

Measured here, 400 episodes of UCB with 5 arms and a gap of 0.5, 6 epochs, 5 seeds, on 60 new bandits: regret after 50
turns 14.5 [13.2, 15.8], 1.7 times that of UCB, 8.7 [8.1, 9.4]; uniform play has 20.0, a greedy player 9.3 [7.7, 10.9],
which never finds the best arm in 29 % of the episodes. The model plays the best arm in 55 % of the last ten turns, UCB
in 82 %, and has not found it by then in 14 %. Its regret grows by 0.14 per turn, that of UCB by 0.01, of uniform play
by 0.40 (docs/experiments.md).
"""

from dataclasses import replace
from typing import Final

from posttrain.components.environments.bandits import Bandits
from posttrain.components.rollouts.turns import Turns
from posttrain.components.tasks.played import Played
from posttrain.methods.sft_rl.sft import sft
from posttrain.recipes.changes import sft_of, with_stage
from posttrain.recipes.tree import Recipe
from posttrain.settings.bandits import bandits

PARENT: Final = "sft"
SETTING: Final = "bandits"
PAPER: Final = "arXiv:2410.06238"
ROWS: Final = (206,)
CHANGES: Final = ("tasks",)


def evolve(recipe: Recipe | None = None) -> Recipe:
    """A change to SFT: demonstrations are episodes of the environment's own player."""
    recipe = sft(recipe or bandits())
    stage, asked = sft_of(recipe), recipe.evaluation.rollout
    if isinstance(stage.tasks, Played):
        shown = replace(stage.tasks, player="solver")
    else:
        own = asked if isinstance(asked, Turns) else Turns(environment=Bandits(), max_turns=50)
        shown = Played(
            tasks=stage.tasks or recipe.tasks, environment=own.environment, player="solver", turns=own.max_turns
        )
    return with_stage(replace(recipe, name="evolve"), replace(stage, tasks=shown))
