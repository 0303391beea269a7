"""Replaces ``auto`` in a recipe by numbers for its models, and warns of rates that are far from the usual ones.

A run's ``recipe.yaml`` holds the numbers, so that it stays a function of its recipe when the table of published
settings grows. Only the headers of a model's files are read.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from posttrain.errors import UserError
from posttrain.models import is_url
from posttrain.models.sources import pinned
from posttrain.recipes.overrides import from_tree, to_tree
from posttrain.recipes.published import FAMILIES, SMALLEST, Usual, usual, usual_max_tokens
from posttrain.recipes.tree import Recipe

if TYPE_CHECKING:
    from posttrain.policies.sizes import ModelSize

CHOSEN: Final = "chosen"
"""Name of the notes on chosen settings in the environment of a run."""


@dataclass(frozen=True, kw_only=True)
class Fitted:
    """A recipe whose settings are all numbers."""

    recipe: Recipe
    chosen: tuple[str, ...] = ()
    """What ``auto`` became, and why."""
    warnings: tuple[str, ...] = ()
    """Settings that are far from the usual ones, with the usual range."""


@dataclass(frozen=True, kw_only=True)
class _Learner:
    """A learner of a recipe's tree."""

    path: str
    settings: dict[str, Any]
    role: str
    family: str


def fit_to_models(recipe: Recipe) -> Fitted:
    """The recipe with a number for every ``auto``. Raises `UserError` for a model that the table is not about."""
    tree, chosen, warnings = to_tree(recipe), list[str](), list[str]()
    chosen += _pin(tree)
    recipe = from_tree(tree) if chosen else recipe
    sizes: dict[str, ModelSize | None] = {}
    unread: dict[str, UserError] = {}

    def size(role: str) -> "ModelSize | None":
        if role not in sizes:
            sizes[role] = _size(role, recipe, unread)
        return sizes[role]

    for name, stage in tree["stages"].items():
        for learner in _learners(name, stage):
            found, model = size(learner.role), recipe.models.get(learner.role)
            lora = model is not None and model.lora is not None
            range_ = usual(learner.family, found.parameters, lora=lora) if found else None
            about = f"{learner.family}, {_millions(found)}{', LoRA' if lora else ''}" if found else ""
            chosen += _choose(learner, range_, about, unread)
            rate = learner.settings["optimizer"].get("lr")
            if range_ is not None and isinstance(rate, int | float) and range_.is_far(rate):
                more = f"{rate / range_.rate:.0f} times" if rate > range_.rate else f"1/{range_.rate / rate:.0f} of"
                warnings.append(
                    f"{learner.path}.optimizer.lr is {rate:g}, {more} the usual {range_.rate:g}. Usual for "
                    f"{about}: {range_}. Write lr=auto for the usual rate"
                )
        chosen += _choose_length(name, stage, size("policy"))
    evaluated = (tree["evaluation"] or {}).get("sampling")
    chosen += _choose_length("evaluation", {"rollout": {"sampling": evaluated}}, size("policy"))
    fitted = from_tree(tree) if chosen else recipe
    return Fitted(recipe=fitted, chosen=tuple(chosen), warnings=tuple(warnings))


def _pin(tree: dict[str, Any]) -> list[str]:
    """Replace sources that can become another model later; returns a line for each."""
    from posttrain.policies.folder import bundled_names

    notes = []
    for role, model in tree["models"].items():
        if model["base"] is not None and model["base"] not in bundled_names():
            model["base"] = pinned(model["base"], "policy")
        source = model["source"]
        if is_url(source) or source.startswith("role:") or source in ("new", "made", *bundled_names()):
            continue
        model["source"] = pinned(source, role)
        if model["source"] != source:
            notes.append(f"models.{role}.source is {model['source']}, which is what {source} has now")
    return notes


def _size(role: str, recipe: Recipe, unread: dict[str, UserError]) -> "ModelSize | None":
    """The size of a role's model, where the table is about models of its kind; why it cannot be read, in `unread`."""
    from posttrain.policies.folder import bundled_names
    from posttrain.policies.sizes import trained_size

    model = recipe.models.get(role)
    if model is None or model.source in bundled_names():
        return None
    try:
        return trained_size(role, dict(recipe.models))
    except UserError as error:
        unread[role] = error  # loading the model raises it, after a resume has compared the model with its first one
        return None


def _learners(name: str, stage: dict[str, Any]) -> list[_Learner]:
    """The learners of a stage that the table is about."""
    found: list[_Learner] = []
    for (kind, field), family in FAMILIES.items():
        held = stage.get(field) if kind == stage["kind"] else None
        if not held:
            continue
        path, own = f"stages.{name}.{field}", stage.get("role", "policy")
        if field == "by_role":
            parts = {f"{path}.{role}.learner": (role, part.get("learner")) for role, part in held.items()}
        else:
            parts = {path: ("critic" if field == "critic_learner" else own, held)}
        found += [
            _Learner(path=at, settings=settings, role=role, family=family)
            for at, (role, settings) in parts.items()
            if settings
        ]
    return found


def _choose(learner: _Learner, range_: Usual | None, about: str, unread: Mapping[str, UserError]) -> list[str]:
    """Replace ``auto`` in a learner's settings; returns a line for each. Raises `UserError` where there is no range."""
    notes = []
    for part, field in (("optimizer", "lr"), ("schedule", "warmup")):
        settings = learner.settings[part]
        if settings.get(field) != "auto":
            continue
        path = f"{learner.path}.{part}.{field}"
        if range_ is None and learner.role in unread:
            raise unread[learner.role]
        if range_ is None:
            raise UserError(
                f"{path} is auto, and the published settings are about models of a folder with at least "
                f"{SMALLEST:,} weights, which the role '{learner.role}' has not; write a number"
            )
        settings[field] = range_.rate if field == "lr" else range_.warmup
        why = f"usual: {range_}" if field == "lr" else "the median of the same settings"
        notes.append(f"{path} is {settings[field]:g} for {about} ({why})")
    return notes


def _choose_length(name: str, stage: Mapping[str, Any], size: "ModelSize | None") -> list[str]:
    """Replace ``auto`` as the most tokens of a completion; returns a line where it was."""
    sampling = (stage.get("rollout") or {}).get("sampling") or {}
    if sampling.get("max_tokens") != "auto":
        return []
    path = f"{'evaluation' if name == 'evaluation' else f'stages.{name}.rollout'}.sampling.max_tokens"
    if size is None:
        raise UserError(f"{path} is auto, and the size of the policy's model cannot be read; write a number")
    sampling["max_tokens"], source = usual_max_tokens(size.context or 2**31)
    return [f"{path} is {sampling['max_tokens']} ({source})"]


def _millions(size: "ModelSize") -> str:
    """``135M weights``."""
    return f"{size.parameters / 1e6:.0f}M weights"
