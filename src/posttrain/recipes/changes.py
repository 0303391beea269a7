"""How methods change recipes: replace a stage, add a role, compose several methods.

stage = rl_of(recipe)
return with_stage(recipe, replace(stage, objective=PPOClip(clip_high=0.28)))
"""

import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import TypeVar

from posttrain.components.filters import Filter
from posttrain.components.filters.zero_variance import ZeroVariance
from posttrain.components.rewards.overlong import Overlong
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
"""A function that changes a recipe and keeps the rest of it."""


def compose(recipe: Recipe, *methods: Method) -> Recipe:
    """Apply methods from left to right; the recipe is named after all of them.

    Warns with `Overlap` for every path that more than one method changes.
    """
    changed_by: dict[tuple[str, ...], str] = {}
    for method in methods:
        before, recipe = recipe, method(recipe)
        found = differences(before, recipe)
        for difference in found:
            earlier = {name for keys, name in changed_by.items() if _overlap(keys, difference.keys)}
            if earlier:
                warning = f"{method.__name__} changes what {' and '.join(sorted(earlier))} had changed: "
                warnings.warn(warning + f"{difference.path}  {difference.text}", Overlap, stacklevel=2)
        changed_by |= {difference.keys: method.__name__ for difference in found}
    return replace(recipe, name="+".join(method.__name__ for method in methods) or recipe.name)


def _overlap(a: tuple[str, ...], b: tuple[str, ...]) -> bool:
    """Whether two paths are equal or one is a prefix of the other."""
    shorter = min(len(a), len(b))
    return a[:shorter] == b[:shorter]


def rl_of(recipe: Recipe) -> RL:
    """The recipe's RL stage. Raises `UserError` if there is none or more than one."""
    return _only(recipe, RL)


def sft_of(recipe: Recipe) -> SFT:
    """The recipe's SFT stage. Raises `UserError` if there is none or more than one."""
    return _only(recipe, SFT)


def preference_of(recipe: Recipe) -> PreferenceTraining:
    """The recipe's preference stage. Raises `UserError` if there is none or more than one."""
    return _only(recipe, PreferenceTraining)


def sampling_of(stage: RL) -> Sampling:
    """The sampling settings of the stage's rollout; the defaults if it has none."""
    sampling = getattr(stage.rollout, "sampling", None)
    return sampling if isinstance(sampling, Sampling) else Sampling()


def rollouts_of(stage: RL, default: int = 8) -> int:
    """Rollouts per task of the stage's rollout; `default` if it has no such setting."""
    return int(getattr(stage.rollout, "n", default))


def sampled_of(recipe: Recipe) -> RL:
    """The recipe's RL stage, for a method that replaces the rollout.

    Raises `UserError` if that would replace an environment of several turns, which belongs to the setting.
    """
    stage = rl_of(recipe)
    if hasattr(stage.rollout, "max_turns"):
        raise UserError(
            f"recipe '{recipe.name}' has the rollout '{stage.rollout.kind}', an environment of several turns, and this "
            "method replaces the rollout by one of a single turn; apply it to a recipe with single-turn rollouts"
        )
    return stage


def every_group(stage: RL) -> dict[str, Filter]:
    """The stage's filters without those that drop groups of equal rewards."""
    return {name: part for name, part in stage.filters.items() if not isinstance(part, ZeroVariance)}


def penalize_overlong(recipe: Recipe, share: float) -> Recipe:
    """DAPO's penalty on completions that reach the last `share` of their tokens.

    Groups are dropped by correctness, since rewards differ by length too, and answers are evaluated without it.
    """
    stage = rl_of(recipe)
    limit = sampling_of(stage).max_tokens
    reward = Overlong(of=stage.reward, limit=limit, buffer=max(1, round(share * limit)))
    filters = {**every_group(stage), "zero_variance": ZeroVariance(by="correctness")}
    return with_stage(keep_verifier(recipe), replace(stage, reward=reward, filters=filters))


def several_updates(learner: Learning, *, epochs: int = 1, minibatches: int = 1) -> Learning:
    """The learner with several updates per batch; unchanged if it has several already."""
    if learner.epochs > 1 or learner.minibatches > 1:
        return learner
    return replace(learner, epochs=epochs, minibatches=minibatches)


def with_stage(recipe: Recipe, changed: Stage) -> Recipe:
    """Replace the recipe's only stage of the same type."""
    old = _only(recipe, type(changed))
    return replace(recipe, stages={n: changed if s is old else s for n, s in recipe.stages.items()})


def with_stages_before(recipe: Recipe, new: Mapping[str, Stage], stage: Stage) -> Recipe:
    """Insert new stages right before a stage of the recipe. Raises `UserError` for a name that is taken."""
    return _with_stages(recipe, stage, before=new)


def with_stages_after(recipe: Recipe, new: Mapping[str, Stage], stage: Stage) -> Recipe:
    """Insert new stages right after a stage of the recipe. Raises `UserError` for a name that is taken."""
    return _with_stages(recipe, stage, after=new)


def _with_stages(
    recipe: Recipe,
    stage: Stage,
    *,
    before: Mapping[str, Stage] = MappingProxyType({}),
    after: Mapping[str, Stage] = MappingProxyType({}),
) -> Recipe:
    taken = sorted((before.keys() | after.keys()) & recipe.stages.keys())
    if taken:
        raise UserError(f"recipe '{recipe.name}' has a stage named '{taken[0]}' already; give it another name")
    stages: dict[str, Stage] = {}
    for name, old in recipe.stages.items():
        here = old is stage
        stages |= {**(before if here else {}), name: old, **(after if here else {})}
    return replace(recipe, stages=stages)


def keep_verifier(recipe: Recipe) -> Recipe:
    """Make the present reward the verifier of held-out answers, for changes that replace the reward.

    An existing verifier is kept.
    """
    if recipe.evaluation.verifier is not None:
        return recipe
    return replace(recipe, evaluation=replace(recipe.evaluation, verifier=rl_of(recipe).reward))


def with_models(recipe: Recipe, models: Mapping[str, Model]) -> Recipe:
    """Add roles to the recipe; an existing role keeps its model."""
    return replace(recipe, models={**recipe.models, **{r: m for r, m in models.items() if r not in recipe.models}})


def without_models(recipe: Recipe, *roles: str) -> Recipe:
    """Leave out models of these roles that no stage uses, nor another model as its source."""
    used = {role for stage in recipe.stages.values() for role in stage.roles}
    used |= {model.source.removeprefix("role:") for model in recipe.models.values()}
    kept = {role: model for role, model in recipe.models.items() if role not in roles or role in used}
    return replace(recipe, models=kept)


def _only(recipe: Recipe, kind: type[S]) -> S:
    found = [stage for stage in recipe.stages.values() if isinstance(stage, kind)]
    if len(found) != 1:
        raise UserError(
            f"recipe '{recipe.name}' has {len(found)} stages of type {kind.__name__} where this change needs exactly "
            f"one; its stages: {', '.join(f'{n} ({s.kind})' for n, s in recipe.stages.items())}"
        )
    return found[0]
