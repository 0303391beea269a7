"""The laws of methods: what every one promises, whatever it is about.

A new method is covered on arrival. Its difference from its parent is kept in ``snapshots/``, for a reviewer to read;
after a change that is meant, write them anew with

    POSTTRAIN_SNAPSHOTS=write make test TESTS=tests/conformance/test_methods.py
"""

import importlib
import math
import os
import string
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from posttrain.components.optimizers.adamw import AdamW
from posttrain.components.rewards.function import Function
from posttrain.components.tasks.countdown import Countdown
from posttrain.errors import UserError
from posttrain.evaluation.settings import Evaluation
from posttrain.methods.credit.gigpo import gigpo
from posttrain.models import Model
from posttrain.policies.folder import new_folder
from posttrain.recipes.catalogue import Entry, entries, recipe_modules
from posttrain.recipes.changes import Method, with_stage
from posttrain.recipes.differences import differences
from posttrain.recipes.overrides import from_tree, to_tree
from posttrain.recipes.tree import Checkpoints, Recipe
from posttrain.runs.context import RunContext
from posttrain.runs.live import LiveView
from posttrain.runs.run import Run
from posttrain.runs.store import RunStore
from posttrain.settings.arithmetic import arithmetic
from posttrain.stages import Models, Stage
from posttrain.stages.rl import RL
from tests.stages.resuming import cut_off_and_resumed, run_and_resumed_copy

METHODS = {entry.name: entry for entry in entries("recipe")}
SETTINGS = {entry.name: entry for entry in entries("setting")}
SNAPSHOTS = Path(__file__).parent / "snapshots"
LIBRARIES = {"mt_r1_zero": "sacrebleu"}
"""Optional package without which a method cannot run."""
AREAS_OF_REWARDS = ("rewards", "reward_models", "multimodal", "agents", "multi_agent", "credit", "flow")
"""Areas in which a paper may be about the reward itself."""

every_method = pytest.mark.parametrize("name", sorted(METHODS))


@cache
def function(name: str) -> Callable[..., Recipe]:
    """The function of a method or a setting."""
    found: Callable[..., Recipe] = getattr(importlib.import_module(recipe_modules()[name]), name)
    return found


@cache
def by_default(name: str) -> Recipe:
    """A method on its default setting."""
    return function(name)()


@cache
def plain(setting: str) -> Recipe:
    """A setting; recipes are immutable, so that all laws can share it."""
    return function(setting)()


# Constants


def test_names_are_unique_and_parents_and_settings_are_there() -> None:
    files = [
        path.stem for path in Path(importlib.import_module("posttrain").__file__ or "").parent.glob("methods/*/*.py")
    ]
    names = [name for name in files if not name.startswith("_")]
    assert len(names) == len(set(names)) == len(METHODS) and not set(names) & SETTINGS.keys()
    for name, entry in METHODS.items():
        assert entry.setting in SETTINGS, f"{name}: SETTING = {entry.setting!r} is no setting"
        assert entry.parent in ("", *METHODS), f"{name}: PARENT = {entry.parent!r} is no method"
        assert lineage(name)[-1] in METHODS


def lineage(name: str, parents: Mapping[str, str] | None = None) -> list[str]:
    """A method and those that it descends from, the root last. Raises `AssertionError` where they form a circle."""
    parents = parents or {other: entry.parent for other, entry in METHODS.items()}
    found = [name]
    while parent := parents[found[-1]]:
        assert parent not in found, f"{' <- '.join([*found, parent])} is a circle"
        found.append(parent)
    return found


def test_a_circle_of_parents_is_found() -> None:
    assert lineage("c", {"a": "", "b": "a", "c": "b"}) == ["c", "b", "a"]
    with pytest.raises(AssertionError, match="a <- b <- a is a circle"):
        lineage("a", {"a": "b", "b": "a"})


@every_method
def test_alone_it_is_the_method_on_its_setting(name: str) -> None:
    recipe = function(name)(plain(METHODS[name].setting))
    assert by_default(name) == recipe and recipe.name == name


# It keeps the setting that it is put on


def foreign(recipe: Recipe, *, shaped: bool = False) -> Recipe:
    """The recipe with a user's own choices: tasks, model, sizes, learning rates, names, everything around them.

    `shaped` keeps the shape of the policy, for methods that are about it.
    """
    model = recipe.models["policy"]
    policy = replace(model, context=777) if shaped else Model(source="mine/model", trained=True, context=777)
    stages = {f"my_{name}": _with_own_sizes(stage) for name, stage in recipe.stages.items()}
    return replace(
        recipe,
        name="mine",
        tasks=Countdown(size=77),
        models={**recipe.models, "policy": policy},
        stages=stages,
        evaluation=replace(recipe.evaluation, holdout=33, every=3, samples=3, correct_at=0.9),
        checkpoints=Checkpoints(every_steps=11, keep=5),
        alarms={name: alarm for name, alarm in recipe.alarms.items() if name != "length"},
        seed=5,
        device="cpu",
        threads=2,
    )


def _with_own_sizes(stage: Stage) -> Stage:
    """A stage of sizes that no method sets by itself."""
    own: dict[str, Any] = {"steps": 17, "prompts": 5, "batch": 7, "epochs": 2.5, "max_steps": 19}
    changes = {field: value for field, value in own.items() if hasattr(stage, field)}
    for field in ("learner", "critic_learner"):
        if hasattr(stage, field):
            changes[field] = replace(getattr(stage, field), optimizer=AdamW(lr=1.25e-5))
    if isinstance(stage, RL):
        sampling = getattr(stage.rollout, "sampling", None)
        if sampling is not None:
            own_sampling = replace(sampling, max_tokens=37, temperature=0.7)
            changes["rollout"] = replace(stage.rollout, sampling=own_sampling)  # type: ignore[type-var]
        changes["reward"] = Function(path="mine.py:score")
    return replace(stage, **changes)  # type: ignore[type-var]


def choices(recipe: Recipe) -> dict[str, Any]:
    """What belongs to a setting, by its path in a recipe with one stage."""
    found: dict[str, Any] = {
        "tasks": recipe.tasks,
        "models.policy": recipe.models["policy"],
        "seed": recipe.seed,
        "device": recipe.device,
        "threads": recipe.threads,
        "engine": recipe.engine,
        "checkpoints": recipe.checkpoints,
        "alarms": recipe.alarms,
        **{f"evaluation.{name}": value for name, value in vars(recipe.evaluation).items()},
    }
    for name, stage in recipe.stages.items():
        paths = ("steps", "prompts", "batch", "epochs", "max_steps", "tasks", "reward", "learner.optimizer.lr")
        more = ("learner.epochs", "learner.minibatches", "rollout.n", "rollout.sampling.max_tokens")
        for path in (*paths, *more, "rollout.sampling.temperature"):
            value: Any = stage
            for part in path.split("."):
                value = getattr(value, part, None)
            if value is not None:
                found[f"{name}.{path}"] = value
    return found


def broken_choices(before: Recipe, after: Recipe, entry: Entry) -> dict[str, tuple[Any, Any]]:
    """The choices that a method did not keep, with both values, but those that it declares to be about."""
    kept, about = choices(after), [path for name in lineage(entry.name) for path in METHODS[name].changes]
    lost = {}
    for path, value in choices(before).items():
        stage, _, short = path.partition(".")
        if stage in before.stages and stage not in after.stages:
            continue  # a method that trains in another way has stages of its own
        short = short if stage in before.stages else path
        if path not in kept and short.startswith("rollout.n"):
            continue  # its rollout has no such setting
        if short == "evaluation.verifier" and value is None:
            continue  # the reward that scored before goes on scoring
        named = any(f"{short}.".startswith(f"{own}.") or f"{own}.".startswith(f"{short}.") for own in about)
        of_rewards = short == "reward" and entry.area in AREAS_OF_REWARDS
        if kept.get(path) != value and not named and not of_rewards:
            lost[path] = (value, kept.get(path))
    return lost


@every_method
def test_keeps_what_it_is_put_on(name: str) -> None:
    """On its own kind of setting with foreign choices: each of them is there afterwards."""
    entry = METHODS[name]
    shaped = any(path.startswith("models.policy") for path in entry.changes)
    mine = foreign(plain(entry.setting), shaped=shaped)
    assert not broken_choices(mine, function(name)(mine), entry)


@every_method
def test_keeps_a_plain_recipe_of_sums_or_states_why_it_cannot_go_on_it(name: str) -> None:
    entry = METHODS[name]
    mine = foreign(arithmetic())
    try:
        changed = function(name)(mine)
    except UserError as error:
        assert len(str(error)) > 40, "what is missing, and what to do"
        return
    assert not broken_choices(mine, changed, entry)


@every_method
def test_changes_on_foreign_settings_what_it_changes_on_its_own(name: str) -> None:
    """Nothing more: a method reads no more into a recipe than its paper states."""
    setting = plain(METHODS[name].setting)
    mine = replace(setting, seed=9, tasks=Countdown(size=77), name="mine")
    ours = {difference.keys for difference in differences(setting, by_default(name))}
    theirs = {difference.keys for difference in differences(mine, function(name)(mine))}
    assert theirs == ours


@every_method
def test_paths_that_it_is_about_are_paths_that_it_changes(name: str) -> None:
    """What `CHANGES` excuses must be needed, on its own setting or on a foreign one; `INHERITED` names other paths."""
    entry = METHODS[name]
    setting = plain(entry.setting)
    changed = set()
    for base in (setting, foreign(setting, shaped=True)):
        changed |= {f".{'.'.join(d.keys)}." for d in differences(base, function(name)(base))}
    for path in entry.changes:
        first = ".".join(path.split(".")[: 2 if path.startswith(("models", "evaluation")) else 1])
        assert any(f".{first}." in own or f".{first}".startswith(own.rstrip(".")) for own in changed), path
    assert not set(entry.inherited) & set(entry.changes)


def test_a_method_that_replaces_a_setting_is_caught() -> None:
    def careless(recipe: Recipe) -> Recipe:
        return replace(gigpo(recipe), tasks=Countdown(size=8), evaluation=Evaluation(holdout=40))

    def greedy(recipe: Recipe) -> Recipe:
        stage = next(stage for stage in recipe.stages.values() if isinstance(stage, RL))
        return with_stage(recipe, replace(stage, steps=40, learner=replace(stage.learner, optimizer=AdamW(lr=3e-4))))

    mine = foreign(function("corridor")())
    lost = broken_choices(mine, careless(mine), METHODS["gigpo"])
    assert {"tasks", "evaluation.holdout", "evaluation.every"} <= lost.keys()
    assert broken_choices(mine, greedy(mine), METHODS["gigpo"]).keys() == {"my_rl.steps", "my_rl.learner.optimizer.lr"}
    assert not broken_choices(mine, gigpo(mine), METHODS["gigpo"])


# Its difference from its parent


def described(name: str) -> str:
    """What a method changes in its parent, on its default setting, as `posttrain diff` prints it."""
    entry = METHODS[name]
    setting = plain(entry.setting)
    base: Method = function(entry.parent) if entry.parent else lambda recipe: recipe
    signs = {"changed": "~", "added": "+", "removed": "-"}
    head = f"{name} on {entry.setting}, against {entry.parent or entry.setting}\n"
    found = differences(base(setting), by_default(name))
    return head + "".join(f"{signs[d.change]} {d.path}  {d.text}\n" for d in found)


@every_method
def test_its_difference_from_its_parent_is_the_one_that_was_reviewed(name: str) -> None:
    path = SNAPSHOTS / f"{name}.txt"
    if os.environ.get("POSTTRAIN_SNAPSHOTS") == "write":
        path.parent.mkdir(exist_ok=True)
        path.write_text(described(name), encoding="utf-8")
    assert path.is_file(), f"{name} is new: write its snapshot (see the top of this file) and read it"
    assert described(name) == path.read_text(encoding="utf-8")


def test_no_snapshot_is_left_of_a_method_that_is_gone() -> None:
    assert {path.stem for path in SNAPSHOTS.glob("*.txt")} == METHODS.keys()


@every_method
def test_its_tree_is_the_same_recipe(name: str) -> None:
    assert from_tree(to_tree(by_default(name))) == by_default(name)


# It runs, and resumes


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return new_folder(tmp_path_factory.mktemp("models") / "tiny", layers=2, width=16, heads=2, kv_heads=1, context=512)


SIZES = {
    "steps": 2,
    "clone_steps": 2,
    "value_steps": 2,
    "max_steps": 2,
    "prompts": 2,
    "batch": 4,
    "minibatches": 1,
    "size": 16,
    "holdout": 2,
    "n": 4,
    "max_tokens": 6,
    "max_turns": 2,
    "iterations": 2,
    "layers": 1,
    "width": 16,
    "mlp_width": 32,
}
"""The most that a setting of this name is in a test."""


def made_small(recipe: Recipe, tiny: Path) -> Recipe:
    """The recipe with few tasks, short completions, two steps a stage and the smallest models."""

    def shrink(value: Any) -> Any:
        if isinstance(value, list):
            return [shrink(item) for item in value]
        if not isinstance(value, dict):
            return value
        return {name: min(item, SIZES[name]) if _is_size(name, item) else shrink(item) for name, item in value.items()}

    tree = shrink(to_tree(recipe))
    for model in tree["models"].values():
        model["source"] = str(tiny) if model["source"] == "pebble" else model["source"]
    tree["evaluation"] |= {"every": 0, "samples": 0}
    tree |= {"threads": 1, "device": "cpu", "checkpoints": {"every_steps": 1, "keep": 2}}
    for stage in tree["stages"].values():  # a random model gives no pair by a rule of right and wrong
        if stage.get("max_steps", 0) is None:
            stage["max_steps"] = 6  # into the second epoch
        selection = stage.get("selection")
        if isinstance(selection, dict) and selection["kind"] == "hardest":
            selection["share"] = 1.0  # of few tasks
            selection = selection.get("then")
        if isinstance(selection, dict) and selection["kind"] == "paired":
            selection["reward"] = {"kind": "regex", "pattern": "[a-m]"}
            selection["pairing"] |= {"cut": True} if selection["pairing"]["kind"] == "prefix_tree" else {}
            selection["pairing"] |= {"least": -9.0, "gap": 0.0} if selection["pairing"]["kind"] == "fragments" else {}
            selection |= {"max_tokens": 200} if selection["pairing"]["kind"] == "extremes" else {}  # so that some end
            if selection["pairing"]["kind"] == "siblings":  # nor does it end its solutions
                selection["pairing"] |= {"iterations": 20}
                selection["pairing"]["sampling"]["stop"] = list(string.ascii_letters)
        if isinstance(selection, dict) and selection["kind"] == "principled":
            selection["reward"]["of"] = {"kind": "regex", "pattern": "[a-m]"}
            selection["sampling"]["stop"] = list("nopqrstuvwxyz")
        if stage["kind"] == "conjectures":  # it proves nothing either
            stage |= {"reward": {"kind": "regex", "pattern": "[a-m]"}, "easiest": 1.0, "end": "a", "rounds": 2}
        if stage.get("audit"):  # a random judge is fooled
            stage["audit"]["most_fooled"] = 1.0
    for alarm in tree["alarms"].values():
        alarm["action"] = "note"
    return from_tree(tree)


def _is_size(name: str, value: Any) -> bool:
    return name in SIZES and isinstance(value, int) and not isinstance(value, bool)


def run(recipe: Recipe, root: Path) -> tuple[Models, RunStore]:
    """The final models and the record of a run that nothing disturbs."""
    context = RunContext(recipe, torch.device("cpu"))
    models = context.first_models()
    context.check(models)
    with RunStore.create(root, recipe.name, to_tree(recipe)) as store:
        models = Run(context, store, LiveView(lines=True)).execute(models)
    return models, RunStore.open(store.folder, reading=True)


@pytest.mark.slow
@every_method
def test_takes_finite_steps_and_resumes_to_the_bit(name: str, tiny: Path, tmp_path: Path) -> None:
    """One run, and the same one cut off in the middle of its last step and continued: models and record are equal.

    What was cut off is a run of its own where tasks are selected, or stages other than imitation come before the last.
    """
    if name in LIBRARIES:
        pytest.importorskip(LIBRARIES[name])
    recipe = made_small(by_default(name), tiny)
    *before, last = recipe.stages.values()
    if any(stage.kind != "sft" for stage in before) or any(stage.selection for stage in (*before, last)):
        models, whole = run(recipe, tmp_path / "whole")
        resumed, again = cut_off_and_resumed(recipe, tmp_path / "cut", at=len(whole.metrics()))
    else:
        (models, whole), (resumed, again) = run_and_resumed_copy(recipe, tmp_path)
    steps = whole.metrics()
    assert steps
    for entry in steps:
        assert all(value is None or math.isfinite(value) for value in entry.values() if isinstance(value, float))
    assert again.metrics() == steps and again.evaluations() == whole.evaluations()
    for step in whole.rollout_steps():
        assert again.rollouts(step) == whole.rollouts(step)
    assert models.keys() == resumed.keys()
    for role, policy in models.items():
        weights = resumed[role].state_dict()
        for parameter, tensor in policy.state_dict().items():
            assert torch.equal(tensor, weights[parameter]), f"{role}: {parameter}"
