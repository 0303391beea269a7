"""Starts and resumes runs, for the commands and for Python."""

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from posttrain.errors import UserError
from posttrain.recipes.files import find_recipe
from posttrain.recipes.overrides import to_tree
from posttrain.recipes.tree import Recipe
from posttrain.runs.bench import Bench
from posttrain.runs.changes import check_models, check_recipe, check_tasks, note_changes
from posttrain.runs.environment import describe_environment
from posttrain.runs.failure import cannot_write, is_about_storage
from posttrain.runs.files import replace_folder
from posttrain.runs.garbage import as_usual
from posttrain.runs.live import LiveView
from posttrain.runs.report import write_report
from posttrain.runs.run import Run
from posttrain.runs.store import RunStore
from posttrain.runs.summary import write_summary
from posttrain.stages import Models

if TYPE_CHECKING:
    import torch

    from posttrain.policies import Policy


def start(recipe: Recipe, root: Path, view: LiveView) -> tuple[Path, dict[str, Any]]:
    """Run a recipe in a new folder under `root`; returns the folder and the summary.

    Data and models are read before the folder is made, so that a mistake in them leaves nothing behind.
    """
    bench = Bench(recipe, prepare_machine(recipe))
    models = bench.first_models()
    bench.check(models)
    store = RunStore.create(root, recipe.name, to_tree(recipe), bench.environment())
    return store.folder, _execute(bench, store, view, models)


def resume(folder: Path, view: LiveView, *, accept_changes: bool = False) -> dict[str, Any]:
    """Go on with a run from its newest good checkpoint, or from its beginning where there is none.

    Raises `UserError` where ``recipe.yaml`` is not what the run began with, unless `accept_changes` takes it.
    """
    with RunStore.open(folder) as store:
        recipe = find_recipe(str(folder / "recipe.yaml"))
        for change in check_recipe(store, recipe, accept=accept_changes):
            view.announce(f"changed: {change}")
        bench = Bench(recipe, prepare_machine(recipe))
        found = describe_environment(bench.environment())
        check_tasks(store, found)
        check_models(store, found, bench.model_folders())
        models = bench.first_models()
        bench.check(models)
        for note in note_changes(store, found):
            view.announce(f"changed: {note}")
        return _execute(bench, store, view, models)


def prepare_machine(recipe: Recipe) -> "torch.device":
    """Set how memory is kept and the number of threads, and choose the device.

    Raises `UserError` for a device that is not there.
    """
    import torch

    from posttrain.kernels.memory import keep_freed_memory

    keep_freed_memory()
    if recipe.threads is not None:
        torch.set_num_threads(recipe.threads)
    return find_device(recipe.device)


def find_device(wanted: Literal["auto", "cpu", "cuda"]) -> "torch.device":
    """The device meant by a recipe's word for it. Raises `UserError` for one that is not there."""
    import torch

    has_gpu = torch.cuda.is_available()
    if wanted == "cuda" and not has_gpu:
        raise UserError(
            "device=cuda was asked for and torch sees no GPU here; use device=cpu or device=auto, or install a CUDA "
            "build of torch (posttrain doctor says what this machine has)"
        )
    return torch.device("cuda" if has_gpu and wanted != "cpu" else "cpu")


def _execute(bench: Bench, store: RunStore, view: LiveView, models: Models) -> dict[str, Any]:
    """Run to the end, then write what a user takes away: the model, the summary, the report."""
    stages = bench.recipe.stages
    lengths = {name: stage.total_steps(bench.problems.of(stage)) for name, stage in stages.items()}
    with store:
        view.announce(bench.recipe.tasks.describe())
        view.start(bench.recipe.name, sum(lengths.values()), lengths)
        try:
            for note in bench.problems.notes:
                view.event("note", note)
            as_usual()
            models = Run(bench, store, view).execute(models)
        finally:
            view.close()
        _save_model(models["policy"], store.folder)
        summary = write_summary(store)
        write_report(store.folder)
        return summary


def _save_model(policy: "Policy", run: Path) -> None:
    """Write the trained model as an ordinary Hugging Face folder; a half-written one is never seen."""
    folder, temporary = run / "model", run / ".model-writing"
    shutil.rmtree(temporary, ignore_errors=True)
    try:
        temporary.mkdir()
        policy.save(temporary)
        replace_folder(temporary, folder)
    except Exception as error:
        about_storage = is_about_storage(error, temporary)
        shutil.rmtree(temporary, ignore_errors=True)
        if not about_storage:
            raise
        raise cannot_write(error, folder, run) from error


def model_source(name: str) -> str:
    """What to load for a model's name: a run's folder stands for its final model, or its newest checkpoint's."""
    folder = Path(name)
    if not (folder / "recipe.yaml").is_file():
        return name
    if (folder / "model").is_dir():
        return str(folder / "model")
    saved = sorted((folder / "checkpoints").glob("step_*/models/policy"))
    if not saved:
        raise UserError(f"{folder} has no model yet: neither a final one nor a checkpoint")
    return str(saved[-1])
