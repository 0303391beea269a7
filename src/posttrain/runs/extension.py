"""Changes of the recipe of a run that has begun: more steps for one that has ended, and what would do nothing.

A stage that ended goes on where the new recipe gives it more steps or a larger budget. The run then goes back to the
newest checkpoint inside that stage, which is saved before its last step, and repeats from there; so the longer run is
the one that would have been, had it been started with these settings.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from posttrain.component import Unread
from posttrain.components.schedules import Schedule
from posttrain.errors import UserError
from posttrain.errors.foreign import parse_json
from posttrain.recipes.files import components_of
from posttrain.recipes.overrides import from_tree
from posttrain.recipes.tree import Recipe
from posttrain.runs.context import RunContext
from posttrain.runs.environment import RECIPE
from posttrain.runs.store import RunStore

State = Mapping[str, Any]
"""What ``state.json`` of a checkpoint holds."""


def is_extended(state: State, store: RunStore, context: RunContext) -> bool:
    """Whether a checkpoint is of the end of a stage that goes on under the recipe as it is now."""
    saved, recipe = state.get(RECIPE), context.recipe
    if saved is None or not 0 < state["stage"] <= len(recipe.stages) or state["steps_done"]:
        return False
    before, name = from_tree(parse_json(saved)), list(recipe.stages)[state["stage"] - 1]
    if before == recipe or list(before.stages)[: state["stage"]] != list(recipe.stages)[: state["stage"]]:
        return False
    entries = [entry for entry in store.metrics() if entry["step"] <= state["step"]]
    sampled = sum(entry.get("sampled_tokens") or 0 for entry in entries)
    done = sum(entry["stage"] == name for entry in entries)
    planned, now = (_total(one, name, context) for one in (before, recipe))
    is_longer = now > planned
    gets_more = before.budget is not None and (recipe.budget is None or recipe.budget > before.budget) and done < now
    return (is_longer or gets_more) and (recipe.budget is None or sampled < recipe.budget)


def check_change(before: Recipe, state: State, store: RunStore, context: RunContext) -> list[str]:
    """Compare a new recipe with what a run has done under the recipe `before`; `state` is its newest checkpoint.

    Returns notes on settings that depend on the number of steps. Raises `UserError` for a change that would do nothing.
    """
    recipe, place = context.recipe, state["stage"]
    ended = list(before.stages)[:place]
    if list(recipe.stages)[:place] != ended:
        raise UserError(
            f"{_names(ended)} of {store.folder} ended already, so it cannot be renamed, moved or left out; for another "
            f"order of stages start a new run: posttrain run {store.folder}/recipe.yaml"
        )
    extended = is_extended(state, store, context)
    for name in ended[:-1] if extended else ended:
        if before.stages[name] != recipe.stages[name]:
            raise UserError(
                f"{_names([name])} of {store.folder} has ended, so a change of its settings would do nothing, unless "
                "it gets more steps and no stage after it has begun. For a run with the new settings from the start: "
                f"posttrain run {store.folder}/recipe.yaml CHANGES"
            )
    if place == len(recipe.stages) and not extended:
        raise UserError(
            f"{store.folder} has ended, and the change gives it nothing to do. More steps continue it: posttrain "
            f"resume {store.folder} steps=NUMBER; with other settings, start a new run: posttrain run "
            f"{store.folder}/recipe.yaml"
        )
    name = list(recipe.stages)[place - 1 if extended else place]
    if name not in before.stages:
        return []
    done = sum(entry["stage"] == name and entry["step"] <= state["step"] for entry in store.metrics())
    planned, now = (_total(one, name, context) for one in (before, recipe))
    if now < done:
        raise UserError(f"{_names([name])} of {store.folder} has done {done} steps, so it cannot end after {now}")
    return _notes(recipe, name, done - extended, planned, now) if now != planned else []


def _total(recipe: Recipe, name: str, context: RunContext) -> int:
    """Steps of a stage; 0 for one whose code is not read."""
    stage = recipe.stages[name]
    return 0 if isinstance(stage, Unread) else stage.total_steps(context.problems.of(context.recipe.stages[name]))


def _notes(recipe: Recipe, name: str, done: int, planned: int, now: int) -> list[str]:
    """What a new number of steps changes in a stage, besides its length."""
    if not done:
        return []
    parts = [part for part in components_of(recipe.stages[name]) if part.follows_progress]
    notes = []
    for schedule in [part for part in parts if isinstance(part, Schedule)]:
        old, new = schedule.factor(min(done / planned, 1.0)), schedule.factor(done / now)
        notes.append(
            f"the schedule {schedule.kind} of stage {name} follows the number of steps: {done} steps are learned at "
            f"the rates of {planned}, and the next is at {new:.3g} of the peak rate, where it would have been {old:.3g}"
        )
    if others := list(dict.fromkeys(part.kind for part in parts if not isinstance(part, Schedule))):
        notes.append(
            f"{', '.join(others)} in stage {name} change with the share of the steps that are done: that was "
            f"{done / planned:.3g} and is {done / now:.3g}"
        )
    if recipe.schedule.ahead:
        notes.append(
            f"schedule={recipe.schedule.kind}: the first {recipe.schedule.ahead} steps after step {planned} are "
            "sampled with newer weights than in a run of that length from the start, where they are sampled ahead"
        )
    return [*notes, f"a run of {now} steps from the start would differ"] if notes else []


def _names(stages: Sequence[str]) -> str:
    """``stage sft``, ``stages sft, rl``."""
    return f"stage{'s' if len(stages) > 1 else ''} {', '.join(stages)}"
