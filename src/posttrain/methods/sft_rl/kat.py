"""KAT-V1 (AutoThink): a model that chooses whether to think, by labels of modes and by credit apart for the choice.

Source: arXiv:2507.08297, and HiPO, arXiv:2509.23967, which gives its algorithm; abstracts, the model card and reviews
were read, not the papers, and gamma is a guess. After imitation of both modes, the model's own checked rollouts label
each task: the mode with the higher success rate, thinking only where it is 0.1 better; the shortest correct rollout of
that mode is imitated. Then GRPO with a reward of 1 for the answer and 0.2 for the form, a bonus for not thinking where
that is no worse, and two normalisations: the tokens that choose are compared between modes, those that answer within
their mode.

    posttrain run kat tasks.tasks=mine.jsonl    # columns: prompt, answer, completion (thoughts, ####, answer)

The metrics `reward/tokens_off` and `reward/tokens_on` are lengths by mode: thoughts that hide in the answers of the
other mode show there. `reward.omega=0` has no bonus.

Differs: its data, written by agents, its distillation with heads for several tokens, and random modes for 1 % of the
tasks are left out. The choice is explained by the domain of the task, not by a strong model.

Measured here: 24 steps of RL (5 seeds) from models that think in nearly all rollouts. Thinking on easy and on hard
sums, last five steps: GRPO on the same labels 99.8 and 99.9 %, two normalisations with the bonus 82 and 87 %, -17
points [-83, +48] and -13 [-67, +42], without the bonus 99.8 and 99.9 %. It falls in some seeds only, to 34 % of the
easy sums at most, and only with the bonus; five seeds show no difference. Held-out accuracy 67.8, 64.8 and 69.0 % at
70, 66 and 70 tokens. In three seeds rollouts have 39 tokens without thoughts at the start and 40 at the end, and 73 and
72 with them: no thoughts hide in the other mode (docs/experiments.md).
"""

from dataclasses import replace
from typing import Final

from posttrain.components.advantages.by_mode import ByMode
from posttrain.components.rewards.match import Match
from posttrain.components.rewards.moded import Moded
from posttrain.components.selections.sampled import Sampled
from posttrain.methods.policy_gradient.grpo import grpo
from posttrain.methods.sft_rl.sft import with_imitation
from posttrain.recipes.changes import keep_verifier, rl_of, sampling_of, sft_of, with_stage, with_stages_before
from posttrain.recipes.tree import Recipe
from posttrain.settings.two_ways_of_sums import two_ways_of_sums

PARENT: Final = "grpo"
SETTING: Final = "two_ways_of_sums"
PAPER: Final = "arXiv:2507.08297"
ROWS: Final = (310,)
CHANGES: Final = ("reward",)


def kat(recipe: Recipe | None = None) -> Recipe:
    """A change to GRPO: labels of modes before it, a reward that compares modes, and credit for the choice apart."""
    recipe = keep_verifier(with_imitation(grpo(recipe or two_ways_of_sums())))
    stage, most = rl_of(recipe), sampling_of(rl_of(recipe)).max_tokens
    modes = Sampled(reward=Match(), use="modes", n=16, first=192, max_tokens=most if isinstance(most, int) else 128)
    labels = replace(sft_of(recipe), epochs=1.0, selection=modes)
    stage = replace(stage, reward=Moded(correct=stage.reward), advantage=ByMode())
    recipe = with_stage(replace(recipe, name="kat"), stage)
    return with_stages_before(recipe, {"labels": labels}, stage)
