"""Optima: two agents that talk get briefer and stay right, by alternating imitation and DPO on their own conversations.

Source: Optima, arXiv:2410.08115, and its release (thunlp/Optima at 4017740), its recipe iSFT-DPO: three iterations of
`optima_isft` and `optima_idpo`, alternating. The reward of a conversation is that of its answer, less .6 times its
share of the longest, plus 1 over the negative log-likelihood of its worst turn under the model at the start, with three
gates: mute ones lose 1, endless ones lose 1, repeated turns get nothing for language (`rewards/conversation`).

    posttrain run optima setting=halves tasks=mine.jsonl model=FOLDER isft_1.rollout.form.view=... isft_1.reward.mute=40
    # columns: prompt, answer, contexts (a list of two texts)
    posttrain run optima world=textarena:SimpleNegotiation-v0 models.bob.source=role:policy    # a game of two players

Differs: as `optima_isft` and `optima_idpo`; the tasks of imitation and DPO are drawn, and not disjoint.

The default run, one seed: of 60 held-out questions 73 % are right after the warm-up and all [94, 100] at the end,
greedily, with 8.3 and 6.6 tokens by the first agent; 22 seconds. What the parts do over five seeds: `optima_isft`.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from posttrain.methods.multi_agent.optima_idpo import searching
from posttrain.methods.multi_agent.optima_isft import optima_isft
from posttrain.recipes.changes import rl_of
from posttrain.recipes.tree import Recipe
from posttrain.settings.halves import halves
from posttrain.stages import Stage

PARENT: Final = "optima_isft"
SETTING: Final = "halves"
PAPER: Final = "arXiv:2410.08115"
ROWS: Final = (257,)
ITERATIONS: Final = 3


def optima(recipe: Recipe | None = None) -> Recipe:
    """A change to iSFT: each iteration of imitation is followed by one of a search and DPO."""
    recipe = optima_isft(recipe or halves())
    stage = rl_of(recipe)
    imitated = replace(stage, steps=1)
    searched = replace(searching(imitated), prompts=max(stage.prompts // 2, 1))
    stages: Mapping[str, Stage] = {
        name: own for i in range(1, ITERATIONS + 1) for name, own in ((f"isft_{i}", imitated), (f"idpo_{i}", searched))
    }
    kept: dict[str, Stage] = {}
    for name, own in recipe.stages.items():
        kept |= dict(stages) if own is stage else {name: own}
    return replace(recipe, name="optima", stages=kept)
