r"""START: imitation of rollouts that a hint made right where the plain one was wrong, and then of own right ones.

Source: arXiv:2503.04625, by two notes on the paper. Round 1 (Hint-RFT): a greedy run without a hint and runs with one;
a hinted run is kept if the plain one is wrong and it is right, not repetitive, and has called the tool
(`rollouts/hint_infer`, `filters/boundary`). Round 2 (RFT): 16 samples of each problem without hints, of which the right
ones are kept. At most 6 calls. No reinforcement and no reward but the final answer's.

    posttrain run start setting=rare_calls model=FOLDER tasks=mine.jsonl    # columns: prompt, answer
    # rl.rollout.hints=['\nWait, I can use Python.'] rl.rollout.trigger='</think>' with an environment of your own

`filters.boundary.keep=hinted` keeps all right hinted runs, `plain` the right plain ones.

Differs: round 2 goes on from the weights of round 1; by one note the paper fine-tunes the base again. Hints are trained
(`rollout.trains_hints`), which the notes leave open: with a hint right before the answer, what reminds the model of
its tool is the hint itself. Hints by kind of problem, the light editing of trajectories and code tests are left out.

Measured here, with a table in place of a model, half of whose problems are easy (5 seeds): 48 % [46, 50] right without
a hint, 67 % [66, 68], 78 % and 85 % with one, two and three. After imitation of 100 rollouts and without hints 85 %
[84, 86] from the boundary, at calls in 26 % of the easy problems and 82 % of the hard ones; 81 % [80, 82] from all
right hinted rollouts, at 73 % and 71 %; 49 % [47, 51] from right plain ones (docs/experiments.md).

The default run, one seed: products of two-digit numbers are right in none of 100 held-out tasks after imitation, and in
99 % after the first round.
"""

from dataclasses import replace
from typing import Final

from posttrain.components.environments.calculator import Calculator
from posttrain.components.filters.boundary import Boundary
from posttrain.components.rollouts.hint_infer import HintInfer
from posttrain.components.rollouts.turns import Turns
from posttrain.methods.sampling.raft import raft
from posttrain.recipes.changes import rl_of, rollouts_of, sampling_of, with_stage, with_stages_after
from posttrain.recipes.tree import Recipe
from posttrain.settings.rare_calls import rare_calls
from posttrain.stages.rl import RL

PARENT: Final = "raft"
SETTING: Final = "rare_calls"
PAPER: Final = "arXiv:2503.04625"
ROWS: Final = (311,)


def start(recipe: Recipe | None = None) -> Recipe:
    """A change to RAFT: hinted rollouts where the plain one is wrong, and a second round without hints."""
    recipe = raft(recipe or rare_calls())
    stage = rl_of(recipe)
    hinted = _with_hints(stage)
    first = replace(stage, rollout=hinted, filters={"boundary": Boundary()})
    second = replace(first, rollout=replace(hinted, insertions=0, n=16))
    recipe = with_stage(replace(recipe, name="start"), first)
    return with_stages_after(recipe, {"rft": second}, first)


def _with_hints(stage: RL) -> HintInfer:
    """Hinted rollouts in the stage's own environment, a calculator if it has none."""
    own = stage.rollout
    if isinstance(own, Turns):
        return HintInfer(environment=own.environment, n=own.n, max_turns=own.max_turns, sampling=own.sampling)
    return HintInfer(environment=Calculator(), n=rollouts_of(stage), sampling=sampling_of(stage))
