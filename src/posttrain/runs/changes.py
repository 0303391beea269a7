"""Changes between the start of a run and its resumption: changed tasks stop it, other changes are logged.

A resumed run equals an uninterrupted one only if tasks, models, code and machine are the same. `environment.json` holds
their digests from the start.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from posttrain.component.user_code import unread
from posttrain.errors import UserError
from posttrain.recipes.differences import differences
from posttrain.recipes.overrides import from_tree, to_tree
from posttrain.recipes.tree import Recipe
from posttrain.runs.environment import RECIPE
from posttrain.types import Task

if TYPE_CHECKING:
    from posttrain.runs.store import RunStore

TASKS, TASK_FILES, REWARD_FILES = "tasks_sha256", "task_files_sha256", "reward_files_sha256"
MODELS: Final = "models_sha256"
"""Names of the digests in the environment of a run."""
BASE: Final = "'s base"
"""Suffix of a role: the base model of its adapter."""
ROUNDING: Final = {
    **{name: name for name in ("device", "cpu", "kernels")},
    "instructions": "processor's instruction set",
    "gpu_kernels": "way of decoding on a GPU",
}
"""What affects rounding: its name in the environment of a run, and in a note."""
GONE: Final = "gone"
"""Digest of a model whose folder is missing."""
READ_WHOLE: Final = 64 << 20
"""Bytes of a model's file that are read; a larger one is sampled, since hashing 100 GB takes minutes."""
BLOCKS: Final = 1024
MODEL_FILES: Final = frozenset({".safetensors", ".gguf", ".json", ".jinja", ".txt", ".model"})


def digest_of(tasks: Iterable[Task]) -> str:
    """SHA-256 of everything that tasks hold, in their order."""
    total = hashlib.sha256()
    for task in tasks:
        content = (
            task.key,
            task.prompt,
            task.answer,
            task.domain,
            task.demonstrations,
            [repr(preference) for preference in task.preferences],
            [repr(rated) for rated in task.rated],
            dict(task.fields),
            *([digest_of([task.asked])] if task.asked else []),
        )
        # The text of other objects can contain an address, which differs between processes.
        total.update(json.dumps(content, default=lambda value: type(value).__name__).encode() + b"\n")
    return total.hexdigest()


def began_with(store: "RunStore") -> Mapping[str, Any] | None:
    """The tree of the recipe that the run began with, or that was accepted since; None where it was not stored."""
    accepted = [entry[RECIPE] for entry in store.history() if RECIPE in entry]
    found: Mapping[str, Any] | None = accepted[-1] if accepted else store.environment().get(RECIPE)
    return found


def check_recipe(store: "RunStore", recipe: Recipe) -> None:
    """Raise `UserError` where ``recipe.yaml`` is not `began_with`: it was edited, or damaged by a power cut."""
    changed = recipe_changes(began_with(store), recipe)
    if changed:
        raise UserError(
            f"{store.folder}/recipe.yaml is not the recipe that the run began with: {'; '.join(changed)}. Put back "
            "what was there and resume; or take the new one from here on with posttrain resume --accept-changes, which "
            f"the history records; or start a new run: posttrain run {store.folder}/recipe.yaml"
        )


def accept_recipe(store: "RunStore", recipe: Recipe, changed: Iterable[str], notes: Iterable[str]) -> None:
    """Make a changed recipe that of the run from here on: in ``recipe.yaml`` and in the history."""
    tree = to_tree(recipe)
    store.write_recipe(tree)
    message = f"the recipe was changed and accepted: {'; '.join(changed)}"
    store.log_history("changed", ". ".join([message, *notes]), recipe=tree)


def recipe_changes(began: Mapping[str, Any] | None, recipe: Recipe) -> list[str]:
    """The paths that differ, with both values; none for a run that did not store its recipe.

    Settings that this version adds have their defaults in both.
    """
    if began is None:
        return []
    with unread():  # neither runs code of the user's
        before, now = from_tree(began), from_tree(to_tree(recipe))
    found = [f"{item.path} was {item.text}" for item in differences(before, now)]
    return [text.replace(" -> ", " and is ") for text in found]


def check_tasks(store: "RunStore", now: Mapping[str, Any]) -> None:
    """Raise `UserError` that names the file when the tasks are not those that the run began with."""
    began = store.environment()
    changed = list(_changed(began.get(TASKS, {}), now[TASKS]))
    if not changed:
        return
    files = list(_changed(began.get(TASK_FILES, {}), now[TASK_FILES]))
    what = f"{', '.join(files)} changed" if files else "what the tasks are made from changed"
    raise UserError(
        f"{what} since the run {store.folder} began, so {' and '.join(changed)} no longer gives the tasks that it "
        "learns from and is evaluated on. Going on would make a run that is neither the old nor a new one, so nothing "
        f"was done. Put back what was there and resume, or start a new run: posttrain run {store.folder}/recipe.yaml"
    )


def digest_of_model(folder: Path) -> str:
    """SHA-256 of the files that a model is read from; `GONE` where there is no such folder or GGUF file. Of a COMET
    model those of its encoder, where that lies in the folder, are among them.

    Of a large file it takes the size and blocks from all over it: other weights differ everywhere.
    """
    if not folder.exists():
        return GONE
    from posttrain.policies.comet import comet_files, is_comet

    files = [folder] if folder.is_file() else [*folder.iterdir()]
    read = {path for path in files if path.suffix.lower() in MODEL_FILES and path.is_file()}
    total = hashlib.sha256()
    if is_comet(folder):
        read |= set(comet_files(folder))
        total.update(digest_of_model(folder / "encoder").encode())
    for path in sorted(read):
        size = path.stat().st_size
        total.update(f"{path.name} {size}\n".encode())
        with path.open("rb") as file:
            if size <= READ_WHOLE:
                total.update(file.read())
                continue
            for block in range(BLOCKS):
                file.seek((size - READ_WHOLE // BLOCKS) * block // (BLOCKS - 1))
                total.update(file.read(READ_WHOLE // BLOCKS))
    return total.hexdigest()


def check_models(store: "RunStore", now: Mapping[str, Any], folders: Mapping[str, Path]) -> None:
    """Raise `UserError` that names the folder when a model is not the one that the run began with.

    `folders` are those of `RunContext.model_folders`. The checkpoint holds a trained model's weights, but not how it
    is read.
    """
    changed = list(_changed(store.environment().get(MODELS, {}), now[MODELS]))
    if not changed:
        return
    name = next((name for name in changed if not name.endswith(BASE)), changed[0])  # an adapter that is gone has none
    role, what = name.removesuffix(BASE), "is gone" if now[MODELS].get(name) == GONE else "changed"
    which = "the base of the model," if name.endswith(BASE) else "the model"
    raise UserError(
        f"models.{role}.source: {which} in '{folders.get(name)}' {what} since the run {store.folder} began. Going on "
        "with another would make a run that is neither the old nor a new one, so nothing was done. Put back what was "
        f"there and resume, or start a new run: posttrain run {store.folder}/recipe.yaml"
    )


def note_changes(store: "RunStore", now: Mapping[str, Any]) -> list[str]:
    """Log changes that do not stop a run but may change its numbers; returns the notes."""
    began = store.environment()
    notes = [
        f"the reward in {file} is not the one that the run began with; steps from here on are scored by the new one"
        for file in _changed(began.get(REWARD_FILES, {}), now[REWARD_FILES])
    ]
    for name, what in ROUNDING.items():
        if name in began and name in now and began[name] != now[name]:
            notes.append(f"the {what} was {began[name]} and is {now[name]}; numbers may be rounded differently")
    packages = now.get("packages", {})
    for name in _changed(began.get("packages", {}), packages):
        was, is_now = began["packages"][name], packages.get(name, "not there")
        notes.append(f"{name} was {was} and is {is_now}; numbers may differ from those of an uninterrupted run")
    for note in notes:
        store.log_history("changed", note)
    return notes


def _changed(began: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    """Names whose value differs or is missing."""
    yield from (name for name, value in began.items() if now.get(name) != value)
