"""What changed between the start of a run and its resumption: changed tasks stop it, other changes are logged.

A resumed run is the run that was left alone only where it finds what that one found. `environment.json` holds digests
of it from the start.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

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
"""What follows a role in the name of the model that its adapter is made for."""
ROUNDING: Final = {
    **{name: name for name in ("device", "cpu", "kernels")},
    "instructions": "processor's instruction set",
    "gpu_kernels": "way of decoding on a GPU",
}
"""What numbers are rounded by, as it is called in the environment of a run and in a note."""
GONE: Final = "gone"
"""What stands for the digest of a model whose folder is not there."""
READ_WHOLE: Final = 64 << 20
"""Bytes; of larger files of a model, so much is read: nobody waits for a hash of a hundred gigabytes."""
BLOCKS: Final = 1024
MODEL_FILES: Final = frozenset({".safetensors", ".json", ".jinja", ".txt", ".model"})


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
        )
        # What JSON does not know can have an address in its text, which is another in every process.
        total.update(json.dumps(content, default=lambda value: type(value).__name__).encode() + b"\n")
    return total.hexdigest()


def check_recipe(store: "RunStore", recipe: Recipe, *, accept: bool) -> list[str]:
    """Compare ``recipe.yaml`` with the recipe that the run began with, or that was accepted since.

    With `accept` another one is taken: the history says what changed, and that is returned in words. Otherwise another
    one raises `UserError`: it was edited, or a power cut tore it where the run is older than its files' being synced.
    """
    accepted = [entry[RECIPE] for entry in store.history() if RECIPE in entry]
    began = accepted[-1] if accepted else store.environment().get(RECIPE)
    changed = recipe_changes(began, recipe)
    if not changed:
        return []
    if not accept:
        raise UserError(
            f"{store.folder}/recipe.yaml is not the recipe that the run began with: {'; '.join(changed)}. Put back "
            "what was there and resume; or take the new one from here on with posttrain resume --accept-changes, which "
            f"the history will say; or start a new run: posttrain run {store.folder}/recipe.yaml"
        )
    store.log_history("changed", f"the recipe was changed and accepted: {'; '.join(changed)}", recipe=to_tree(recipe))
    return changed


def recipe_changes(began: Mapping[str, Any] | None, recipe: Recipe) -> list[str]:
    """Each path that is not as it was, with both values; none for a run that did not keep its recipe.

    Both are compared with the settings filled in that this version adds.
    """
    if began is None:
        return []
    found = [f"{item.path} was {item.text}" for item in differences(from_tree(began), recipe)]
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
        "learns from and is judged by. Going on would make a run that is neither the old nor a new one, so nothing was "
        f"done. Put back what was there and resume, or start a new run: posttrain run {store.folder}/recipe.yaml"
    )


def digest_of_model(folder: Path) -> str:
    """SHA-256 of the files that a model is read from; `GONE` where there is no such folder.

    Of a large file it takes the size and blocks from all over it: other weights differ everywhere.
    """
    if not folder.is_dir():
        return GONE
    total = hashlib.sha256()
    for path in sorted(path for path in folder.iterdir() if path.suffix in MODEL_FILES and path.is_file()):
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

    `folders` are those of `Bench.model_folders`. Of a trained model the checkpoint holds the weights, but not how it is
    read.
    """
    changed = list(_changed(store.environment().get(MODELS, {}), now[MODELS]))
    if not changed:
        return
    name = next((name for name in changed if not name.endswith(BASE)), changed[0])  # an adapter that is gone has none
    role, what = name.removesuffix(BASE), "is gone" if now[MODELS].get(name) == GONE else "changed"
    which = "the model that the adapter is made for," if name.endswith(BASE) else "the model"
    raise UserError(
        f"models.{role}.source: {which} in '{folders.get(name)}' {what} since the run {store.folder} began. Going on "
        "with another would make a run that is neither the old nor a new one, so nothing was done. Put back what was "
        f"there and resume, or start a new run: posttrain run {store.folder}/recipe.yaml"
    )


def note_changes(store: "RunStore", now: Mapping[str, Any]) -> list[str]:
    """What the run can go on with, but with other numbers than if it had been left alone; put into its history."""
    began = store.environment()
    notes = [
        f"the reward in {file} is not the one that the run began with; steps from here on are judged by the new one"
        for file in _changed(began.get(REWARD_FILES, {}), now[REWARD_FILES])
    ]
    for name, what in ROUNDING.items():
        if name in began and name in now and began[name] != now[name]:
            notes.append(f"the {what} was {began[name]} and is {now[name]}; numbers may be rounded differently")
    packages = now.get("packages", {})
    for name in _changed(began.get("packages", {}), packages):
        was, is_now = began["packages"][name], packages.get(name, "not there")
        notes.append(f"{name} was {was} and is {is_now}; numbers may differ from those of a run left alone")
    for note in notes:
        store.log_history("changed", note)
    return notes


def _changed(began: Mapping[str, Any], now: Mapping[str, Any]) -> Iterator[str]:
    """Names whose value is another one, or gone."""
    yield from (name for name, value in began.items() if now.get(name) != value)
