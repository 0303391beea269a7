"""Optima with iSFT: both agents imitate the best conversation of each task, by result, length and language.

Source: Optima, arXiv:2410.08115, and its release (thunlp/Optima at 4017740), its iterative SFT: ten conversations for
each task, of which the one with the highest reward is imitated by both agents, for the best 70 % of the tasks and from
a reward of .5 on (`filters/best_conversations`). The reward is `rewards/conversation`, the conversation
`rollouts/dialogue`. An iteration is a step. The base that reads turns is the model at the start of the stage, unless
``models.base.source`` names one.

    posttrain run optima_isft setting=halves tasks=mine.jsonl model=FOLDER rl.rollout.form.view=... reward.mute=40
    # columns: prompt, answer, contexts (a list of two texts)
    posttrain run optima_isft world=textarena:SimpleNegotiation-v0 models.bob.source=role:policy

With ``world=`` the two play a game of two players (`rollouts/game`). Its other player is the role ``bob``, by default
the policy at the start of the stage, and the two change places in every second game, so that the policy learns both
parts; each is rewarded by what its own player gets.

Differs: the temperature is that of the setting (.3 in the first round and .7 later in the release), and formats are not
asked for unless `rollout.form.formats` has some. Tasks are drawn in each step. The weight of the language is 1, or that
of the setting: .25 here, where turns have NLLs of 1 to 3 nats a token.

Measured here (two letters, of which each agent has
one; five seeds, four rounds of 32 questions, 200 other ones at temperature 1): after the warm-up 68 % [59, 77] are
right with 18.4 tokens [17.7, 19.1]. Without the term of the length 84 % [77, 91] and 18.4 tokens [16.2, 20.7]; with
lambda -.3 or -.6 both 93 % [85, 101] and 10.4 tokens [10.0, 10.7], of 10 that are needed. Without the gate half of the
conversations are mute, 51 % [23, 78], and 55 % [37, 73] right. With a weight of 1 for the language the NLL of the worst
turn is 1.4 [1.3, 1.5] and not 2.5 [2.3, 2.6], but 17 % [9, 25] are mute and 77 % [69, 86] right, since here 1 over the
NLL outweighs the gate (docs/experiments.md).
"""

from dataclasses import replace
from typing import Final

from posttrain.components.filters.best_conversations import BestConversations
from posttrain.components.rewards.conversation import Conversation
from posttrain.components.rollouts.dialogue import Dialogue
from posttrain.components.rollouts.game import Game
from posttrain.components.rollouts.turns import Turns
from posttrain.methods.sampling.raft import raft
from posttrain.models import Model
from posttrain.recipes.changes import (
    keep_verifier,
    rl_of,
    rollouts_of,
    sampling_of,
    several_updates,
    with_models,
    with_stage,
)
from posttrain.recipes.tree import Recipe
from posttrain.settings.halves import halves
from posttrain.stages.rl import RL

PARENT: Final = "raft"
SETTING: Final = "halves"
PAPER: Final = "arXiv:2410.08115"
ROWS: Final = (257,)
CHANGES: Final = ("reward", "learner.epochs", "learner.minibatches")
BOB: Final = "bob"
"""Role of the other player of a game."""


def optima_isft(recipe: Recipe | None = None) -> Recipe:
    """A change to RAFT: conversations of two agents, a reward of result, length and language, and both imitate."""
    before = recipe or halves()
    stage = imitating(rl_of(raft(before)))
    stage = replace(stage, learner=several_updates(rl_of(before).learner, epochs=2, minibatches=4))
    recipe = with_stage(keep_verifier(before), stage)
    models = {"base": recipe.models.get("base", Model(source="role:policy", trained=True))}
    if isinstance(stage.rollout, Game) and stage.rollout.partner is not None:
        models |= {stage.rollout.partner: recipe.models.get(stage.rollout.partner, Model(source="role:policy"))}
    return with_models(replace(recipe, name="optima_isft"), models)


def imitating(stage: RL) -> RL:
    """The stage with conversations, or games, their reward, and the filter of the best ones."""
    own = stage.reward
    reward = replace(own, tokens=-0.6) if isinstance(own, Conversation) else Conversation(of=own)
    kept = {name: part for name, part in stage.filters.items() if name != "ranked"}
    return replace(
        stage,
        rollout=_talking(stage),
        reward=reward,
        filters={**kept, "best_conversations": BestConversations()},
    )


def _talking(stage: RL) -> Dialogue | Game:
    """What the two write: where the setting has an environment, a game of it."""
    own = stage.rollout
    if isinstance(own, Dialogue | Game):
        return own
    if isinstance(own, Turns):
        turns, sampling = 2 * own.max_turns, own.sampling
        return Game(environment=own.environment, n=own.n, max_turns=turns, sampling=sampling, partner=BOB, swapped=True)
    return Dialogue(n=rollouts_of(stage), sampling=sampling_of(stage))
