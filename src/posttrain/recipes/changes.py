"""How methods change recipes: replace a stage, add a role, compose several methods.

stage = rl_of(recipe)
return with_stage(recipe, replace(stage, objective=PPOClip(clip_high=0.28)))
"""

import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TypeVar

from posttrain.components.filters import Filter
from posttrain.components.filters.zero_variance import ZeroVariance
from posttrain.engines import Sampling
from posttrain.errors import Overlap, UserError
from posttrain.models import Model
from posttrain.recipes.differences import differences
from posttrain.recipes.tree import Recipe
from posttrain.stages import Stage
from posttrain.stages.preference import PreferenceTraining
from posttrain.stages.rl import RL
from posttrain.stages.sft import SFT
from posttrain.training.settings import Learning

S = TypeVar("S", bound=Stage)
Method = Callable[[Recipe], Recipe]
"""What changes a recipe, and keeps all that it is not about."""


def compose(recipe: Recipe, *methods: Method) -> Recipe:
    """The recipe with methods applied from left to right, named after all of them.

    Warns with `Overlap` of every path that an earlier method had changed and a later one changes again.
    """
    changed_by: dict[tuple[str, ...], str] = {}
    for method in methods:
        before, recipe = recipe, method(recipe)
        found = differences(before, recipe)
        for difference in found:
            earlier = {name for keys, name in changed_by.items() if _overlap(keys, difference.keys)}
            if earlier:
                said = f"{method.__name__} changes what {' and '.join(sorted(earlier))} had changed: "
                warnings.warn(said + f"{difference.path}  {difference.text}", Overlap, stacklevel=2)
        changed_by |= {difference.keys: method.__name__ for difference in found}
    return replace(recipe, name="+".join(method.__name__ for method in methods) or recipe.name)


def _overlap(a: tuple[str, ...], b: tuple[str, ...]) -> bool:
    """Whether one of two paths is the other one or lies above it."""
    shorter = min(len(a), len(b))
    return a[:shorter] == b[:shorter]


def rl_of(recipe: Recipe) -> RL:
    """The recipe's reinforcement stage. Raises `UserError` where there is none or more than one."""
    return _only(recipe, RL)


def sft_of(recipe: Recipe) -> SFT:
    """The recipe's imitation stage. Raises `UserError` where there is none or more than one."""
    return _only(recipe, SFT)


def preference_of(recipe: Recipe) -> PreferenceTraining:
    """The recipe's stage on pairs of completions. Raises `UserError` where there is none or more than one."""
    return _only(recipe, PreferenceTraining)


def sampling_of(stage: RL) -> Sampling:
    """How the stage's rollout draws tokens; the defaults where it has no such setting."""
    sampling = getattr(stage.rollout, "sampling", None)
    return sampling if isinstance(sampling, Sampling) else Sampling()


def attempts_of(stage: RL, default: int = 8) -> int:
    """Attempts at a task in the stage's rollout; the default where it has no such setting."""
    return int(getattr(stage.rollout, "n", default))


def sampled_of(recipe: Recipe) -> RL:
    """The recipe's reinforcement stage, for a method that brings a rollout of its own.

    Raises `UserError` where that would take the place of a world of several turns, which belongs to the setting.
    """
    stage = rl_of(recipe)
    if hasattr(stage.rollout, "max_turns"):
        raise UserError(
            f"recipe '{recipe.name}' has the rollout '{stage.rollout.kind}', a world of several turns, and this method "
            "brings a rollout of its own, which samples answers of one turn; apply it to a recipe of single answers"
        )
    return stage


def every_group(stage: RL) -> dict[str, Filter]:
    """The stage's filters but those that leave out groups of equal rewards."""
    return {name: part for name, part in stage.filters.items() if not isinstance(part, ZeroVariance)}


def several_updates(learner: Learning, *, epochs: int = 1, minibatches: int = 1) -> Learning:
    """The learner with several updates a batch; unchanged where it makes several already."""
    if learner.epochs > 1 or learner.minibatches > 1:
        return learner
    return replace(learner, epochs=epochs, minibatches=minibatches)


def with_stage(recipe: Recipe, changed: Stage) -> Recipe:
    """The recipe with a stage in the place of its only one of the same type."""
    old = _only(recipe, type(changed))
    return replace(recipe, stages={n: changed if s is old else s for n, s in recipe.stages.items()})


def with_stages_before(recipe: Recipe, new: Mapping[str, Stage], stage: Stage) -> Recipe:
    """The recipe with new stages right before one that it has. Raises `UserError` for a name that is taken."""
    taken = sorted(new.keys() & recipe.stages.keys())
    if taken:
        raise UserError(f"recipe '{recipe.name}' has a stage named '{taken[0]}' already; give it another name")
    stages: dict[str, Stage] = {}
    for name, old in recipe.stages.items():
        stages |= {**(new if old is stage else {}), name: old}
    return replace(recipe, stages=stages)


def judged_as_before(recipe: Recipe) -> Recipe:
    """The recipe with the reward that it has now as the judge of held-out answers, for changes that replace the reward.

    A verifier that the evaluation has is kept.
    """
    if recipe.evaluation.verifier is not None:
        return recipe
    return replace(recipe, evaluation=replace(recipe.evaluation, verifier=rl_of(recipe).reward))


def with_models(recipe: Recipe, models: Mapping[str, Model]) -> Recipe:
    """The recipe with more roles; a role that it has keeps its model."""
    return replace(recipe, models={**recipe.models, **{r: m for r, m in models.items() if r not in recipe.models}})


def _only(recipe: Recipe, kind: type[S]) -> S:
    found = [stage for stage in recipe.stages.values() if isinstance(stage, kind)]
    if len(found) != 1:
        raise UserError(
            f"recipe '{recipe.name}' has {len(found)} stages of type {kind.__name__} where this change needs exactly "
            f"one; its stages: {', '.join(f'{n} ({s.kind})' for n, s in recipe.stages.items())}"
        )
    return found[0]
