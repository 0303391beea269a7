"""ReST-RL: ReST-GRPO, then a value model trained on tree searches of the policy, then value-guided search at test time.

Source: ReST-RL, arXiv:2508.19576, and its released code (github.com/THUDM/ReST-RL): the value model is trained with
squared error on the values of all expanded states and the rewards of all complete continuations, from searches for data
(c = 0.2, 3 children). Held-out tasks are answered by the same search with the value model (15 rounds of 5, c = 0.1, 5
children).

`CHANGES`: search with the value model is a part of the method.

Differs: as in rest_grpo. The value model is trained while data is searched for, with 6 rounds per search instead of
100.
"""

from dataclasses import replace
from typing import Final

from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.reducers.sequences import Sequences
from posttrain.components.search.tree import Tree
from posttrain.methods.search.rest_grpo import rest_grpo
from posttrain.models import Model
from posttrain.recipes.changes import rl_of, sampling_of, with_models
from posttrain.recipes.tree import Recipe
from posttrain.settings.arithmetic import arithmetic
from posttrain.stages.value_model import ValueModelTraining
from posttrain.training.settings import Learning

PARENT: Final = "rest_grpo"
SETTING: Final = "arithmetic"
PAPER: Final = "arXiv:2508.19576"
ROWS: Final = (226,)
CHANGES: Final = ("evaluation.search",)


def rest_rl(recipe: Recipe | None = None) -> Recipe:
    """A change to ReST-GRPO: a value model is trained afterwards and guides search, in addition to greedy decoding."""
    recipe = rest_grpo(recipe or arithmetic())
    stage = rl_of(recipe)
    guided = Tree(delimiter=";", sampling=sampling_of(stage))
    values = ValueModelTraining(
        search=replace(guided, iterations=6, keep=3, exploration=0.2, value_role=None),
        reward=stage.reward,
        reducer=Sequences(),
        learner=Learning(optimizer=AdamW(lr=3e-4), epochs=2, minibatches=2),
    )
    recipe = with_models(recipe, {"value": Model(source="role:policy", head="reward", trained=True)})
    return replace(
        recipe,
        name="rest_rl",
        stages={**recipe.stages, "values": values},
        evaluation=replace(recipe.evaluation, search=recipe.evaluation.search or guided),
    )
