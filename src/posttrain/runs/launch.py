"""Starts and resumes runs, for the commands and for Python."""

import contextlib
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from posttrain.errors import AlarmStop, Interrupted, PosttrainError, RunFailed, UserError
from posttrain.models import hub
from posttrain.models.sources import model_of_run
from posttrain.recipes.files import find_recipe
from posttrain.recipes.overrides import from_tree, to_tree
from posttrain.recipes.tree import Recipe
from posttrain.runs.changes import (
    accept_recipe,
    began_with,
    check_models,
    check_recipe,
    check_tasks,
    digest_of_model,
    note_changes,
    recipe_changes,
)
from posttrain.runs.context import RunContext, opening_events
from posttrain.runs.environment import describe_environment
from posttrain.runs.extension import check_change
from posttrain.runs.failure import cannot_write, is_about_storage
from posttrain.runs.files import replace_folder
from posttrain.runs.garbage import as_usual
from posttrain.runs.limits import TimeLimit
from posttrain.runs.live import LiveView
from posttrain.runs.report import write_report
from posttrain.runs.run import Run
from posttrain.runs.snapshot import newest_state
from posttrain.runs.state import FAILED, STOPPED
from posttrain.runs.store import RunStore
from posttrain.runs.summary import write_summary
from posttrain.runs.tracking import Tracking
from posttrain.stages import Models

if TYPE_CHECKING:
    import torch

    from posttrain.policies import Policy

PUSHED = "pushed"
"""Kind of the history's entry about the model that was pushed."""


def start(
    recipe: Recipe,
    root: Path,
    view: LiveView,
    warnings: Sequence[str] = (),
    *,
    most_steps: int | None = None,
    limit: TimeLimit | None = None,
    replayed: Sequence[Mapping[str, Any]] | None = None,
    followed: Path | None = None,
) -> tuple[Path, dict[str, Any]]:
    """Run a recipe in a new folder under `root`; returns the folder and the summary.

    Data and models are read, and the cluster's processes started, before the folder is made, so that a mistake in them
    or a cluster that refuses leaves nothing behind. `warnings` are
    recorded with those of the checks. `most_steps` ends each stage early, for a rehearsal; at `limit` the run is
    saved and stops. `replayed` is the journal of a run to compute again (`RunStore.stream`), and `followed` its folder,
    whose answers of environments are taken.
    """
    for tracker in recipe.trackers:
        tracker.check()
    context = RunContext(recipe, prepare_machine(recipe))
    models = context.first_models()
    context.check(models)
    context.problems.warnings[:0] = warnings
    with contextlib.ExitStack() as processes:
        processes.enter_context(context.processes())
        store = RunStore.create(root, recipe.name, to_tree(context.recipe), context.environment())
        if followed is not None:
            store.episodes.follow(followed)
        memory = context.estimate()
        if context.device.type == "cpu" and memory.fits is False:
            store.log_history("warning", " ".join(memory.lines()))
            view.announce("\n".join(memory.lines()))
        return store.folder, _execute(context, store, view, models, processes, most_steps, limit, replayed)


def resume(
    folder: Path,
    view: LiveView,
    changes: Sequence[str] = (),
    *,
    accept_changes: bool = False,
    limit: TimeLimit | None = None,
) -> dict[str, Any]:
    """Continue a run from its newest valid checkpoint, or from its start if there is none.

    `changes` to its recipe hold from there on; more steps continue a run that has ended. Raises `UserError` for changes
    that would do nothing, and, unless `accept_changes`, if ``recipe.yaml`` is not the recipe that the run started with.
    """
    with RunStore.open(folder) as store:
        recipe = find_recipe(str(folder / "recipe.yaml"), changes)
        if not accept_changes:
            check_recipe(store, find_recipe(str(folder / "recipe.yaml")) if changes else recipe)
        context = RunContext(recipe, prepare_machine(recipe))
        changed = recipe_changes(began_with(store), context.recipe)
        found = describe_environment(context.environment())
        check_tasks(store, found)
        check_models(store, found, context.model_folders())
        notes = _check_change(store, context) if changed else []
        models = context.first_models()
        context.check(models)
        with contextlib.ExitStack() as processes:
            processes.enter_context(context.processes())
            if changed:
                accept_recipe(store, context.recipe, changed, notes)
            elif changes:
                view.announce(f"the recipe of {folder} has these already: {' '.join(changes)}")
            for note in [*changed, *notes, *note_changes(store, found)]:
                view.announce(f"changed: {note}")
            return _execute(context, store, view, models, processes, limit=limit)


def _check_change(store: RunStore, context: RunContext) -> list[str]:
    """Notes on a changed recipe. Raises `UserError` where the change would do nothing."""
    began, state = began_with(store), newest_state(store)
    return check_change(from_tree(began), state, store, context) if began and state else []


def prepare_machine(recipe: Recipe) -> "torch.device":
    """Set how memory is kept and the number of threads, and choose the device.

    Raises `UserError` for a device that is not there.
    """
    import torch

    from posttrain.kernels.memory import keep_freed_memory

    keep_freed_memory()
    if recipe.threads is not None:
        torch.set_num_threads(recipe.threads)
    device = find_device(recipe.device)
    recipe.cluster.check(device.type)
    return device


def find_device(wanted: Literal["auto", "cpu", "cuda"]) -> "torch.device":
    """The device of a recipe's `device`. Raises `UserError` for one that is not there."""
    import torch

    has_gpu = torch.cuda.is_available()
    if wanted == "cuda" and not has_gpu:
        raise UserError(
            "device=cuda was requested and torch sees no GPU here; use device=cpu or device=auto, or install a CUDA "
            "build of torch (posttrain doctor shows what this machine has)"
        )
    return torch.device("cuda" if has_gpu and wanted != "cpu" else "cpu")


def _execute(
    context: RunContext,
    store: RunStore,
    view: LiveView,
    models: Models,
    processes: contextlib.ExitStack,
    most_steps: int | None = None,
    limit: TimeLimit | None = None,
    replayed: Sequence[Mapping[str, Any]] | None = None,
) -> dict[str, Any]:
    """Run all stages, end the processes, then write the model, the summary and the report."""
    stages = context.recipe.stages
    lengths = {name: stage.total_steps(context.problems.of(stage)) for name, stage in stages.items()}
    trackers = context.recipe.trackers if most_steps is None else ()  # a rehearsal is no run to keep
    with store, Tracking(trackers, store, view) as tracking:
        view.announce(context.recipe.tasks.describe())
        view.start(context.recipe.name, sum(lengths.values()), lengths)
        try:
            for kind, message in opening_events(context, store):
                view.event(kind, message)
            as_usual()
            with processes:
                models = Run(context, store, view, most_steps, limit, tracking, replayed).execute(models)
        except BaseException as error:
            _log_end(store, error)
            raise
        finally:
            view.close()
        _save_model(models["policy"], store.folder)
        summary = write_summary(store)
        write_report(store.folder)
        tracking.finish(summary)
        if context.recipe.push is not None:
            _push(context.recipe.push, store, view)
        return summary


def _log_end(store: RunStore, error: BaseException) -> None:
    """Record why the run ended before its last step, if that can still be written."""
    asked = isinstance(error, AlarmStop | Interrupted | KeyboardInterrupt)
    with contextlib.suppress(PosttrainError, OSError):
        store.log_history(STOPPED if asked else FAILED, str(error) or type(error).__name__)


def _push(repository: str, store: RunStore, view: LiveView) -> None:
    """Push the final model, unless it was pushed before. Raises `RunFailed` with what to do where that fails."""
    folder = store.folder / "model"
    digest = digest_of_model(folder)
    pushed = [entry for entry in store.history() if entry["kind"] == PUSHED]
    if pushed and (pushed[-1].get("model"), pushed[-1].get("repository")) == (digest, repository):
        return
    try:
        url = hub.push(folder, repository, f"Trained by posttrain: {store.name}")
    except RunFailed as error:
        store.log_history("note", str(error))
        raise RunFailed(
            f"the run has ended and is saved in {store.folder}, but {error}. Push it again with: posttrain resume "
            f"{store.folder}"
        ) from None
    store.log_history(PUSHED, f"the model was pushed to {url}", model=digest, repository=repository)
    view.announce(f"pushed  {url}")


def _save_model(policy: "Policy", run: Path) -> None:
    """Write the trained model as an ordinary Hugging Face folder, atomically."""
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
    """The source to load for a model's name; for a run's folder its final model, or its newest checkpoint's."""
    is_run = (Path(name) / "recipe.yaml").is_file()
    return str(model_of_run(Path(name))) if is_run else name
