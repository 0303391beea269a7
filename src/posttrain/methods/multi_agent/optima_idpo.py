"""Optima with iDPO: a tree of conversations in each iteration, and DPO on turns whose values are far enough apart.

Source: Optima, arXiv:2410.08115, and its release (thunlp/Optima at 4017740), its iterative DPO: eight searches with
three conversations each (`rollouts/dialogue_tree`), in each node the best turn against the worst
(`filters/turn_pairs`), DPO with beta .1 plus the mean negative log-likelihood of the chosen turn, whose reference is
the policy at the start of the iteration. It begins with one iteration of iSFT. Turns with the names of both agents have
no reward of the task.

    posttrain run optima_idpo setting=halves tasks=mine.jsonl model=FOLDER rl.rollout.of.form.view=...
    # columns: prompt, answer, contexts (a list of two texts)

Differs: see `rollouts/dialogue_tree`. In a game (``world=``) only turns that are the same are one, since moves that
differ by a letter lead elsewhere. An iteration is a step, so that the optimizer's moments are kept. The rate is a
fifth of that of the imitation.

Measured here (four rounds from the warm-up of `optima_isft`, without the term of the language, five seeds): 71 % [61,
81] are right with 15.3 tokens [14.3, 16.3], before it 68 % and 18.4. DPO on the best and the worst whole conversation
of a task, from as many conversations: 77 % [68, 86] and 14.2 tokens [13.8, 14.7]. So turns of a tree are not ahead
here, and both are behind iSFT, whose rate is five times as high (docs/experiments.md).
"""

from dataclasses import replace
from typing import Any, Final

from posttrain.components.filters.turn_pairs import TurnPairs
from posttrain.components.objectives.pairwise import Pairwise
from posttrain.components.preferences.dpo import DPO
from posttrain.components.preferences.rpo import RPO
from posttrain.components.reducers.groups import Groups
from posttrain.components.rewards.conversation import Conversation
from posttrain.components.rollouts.dialogue import Dialogue
from posttrain.components.rollouts.dialogue_tree import DialogueTree
from posttrain.components.rollouts.game import Game
from posttrain.methods.multi_agent.optima_isft import optima_isft
from posttrain.recipes.changes import rl_of, with_stage, with_stages_before
from posttrain.recipes.tree import Recipe
from posttrain.settings.halves import halves
from posttrain.stages.rl import RL

PARENT: Final = "optima_isft"
SETTING: Final = "halves"
PAPER: Final = "arXiv:2410.08115"
ROWS: Final = (257,)
CHANGES: Final = ("reward", "learner.optimizer.lr", "learner.epochs", "learner.minibatches", "rollout.sampling")
SLOWER: Final = 0.2
"""Learning rate of DPO over that of the imitation."""


def optima_idpo(recipe: Recipe | None = None) -> Recipe:
    """A change to iSFT: after its first iteration, sibling turns of a search are pairs for DPO."""
    recipe = optima_isft(recipe or halves())
    stage = rl_of(recipe)
    searched = searching(stage)
    recipe = with_stage(replace(recipe, name="optima_idpo"), searched)
    return with_stages_before(recipe, {"isft": replace(stage, steps=1)}, searched)


def searching(stage: RL) -> RL:
    """A stage of iSFT with a search and DPO in place of imitation."""
    talk = stage.rollout
    assert isinstance(talk, Dialogue | Game) and isinstance(stage.reward, Conversation), "that of optima_isft"
    tree = DialogueTree(of=talk) if isinstance(talk, Dialogue) else DialogueTree(of=talk, merged=0.0)
    kept = {name: part for name, part in stage.filters.items() if name != "best_conversations"}
    optimizer: Any = stage.learner.optimizer
    slower = replace(optimizer, lr=optimizer.lr * SLOWER)
    loss = RPO(loss=DPO(beta=0.1, reference="old"), eta=1.0, length="mean", times_beta=False)
    return replace(
        stage,
        rollout=tree,
        reward=replace(stage.reward, strict=True),
        filters={**kept, "turn_pairs": TurnPairs()},
        objective=Pairwise(loss=loss, pairs="extremes"),
        reducer=Groups(),
        learner=replace(stage.learner, epochs=1, optimizer=slower),
    )
