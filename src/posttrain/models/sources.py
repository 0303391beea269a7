"""Where the files of a model are, whatever its source: a folder, a run, a repository of the hub."""

from pathlib import Path

from posttrain.errors import UserError
from posttrain.models import hub


def find_model(source: str, role: str = "policy") -> Path:
    """The folder or file that a model is read from; one of the hub is downloaded where it is not in the cache.

    For a run it is the final model, or that of its newest checkpoint; for another role than ``policy`` the model that
    the run has in that role, if it has one.
    """
    folder = Path(source).expanduser()
    if (folder / "recipe.yaml").is_file():
        return model_of_run(folder, role if role != "policy" and has_role(folder, role) else "policy")
    return hub.download(source) if hub.is_hub_name(source) else folder


def pinned(source: str, role: str) -> str:
    """A source that stays what it is now: of a run the folder of its model, of a repository a commit."""
    if (Path(source).expanduser() / "recipe.yaml").is_file():
        return str(find_model(source, role))
    return hub.pinned(source) if hub.is_hub_name(source) else source


def has_role(run: Path, role: str) -> bool:
    """Whether a checkpoint of a run has a model in a role."""
    return any((run / "checkpoints").glob(f"step_*/models/{role}"))


def model_of_run(run: Path, role: str = "policy") -> Path:
    """The model of a role in a run: the final one of the policy, else that of its newest checkpoint.

    Raises `UserError` where there is none.
    """
    if role == "policy" and (run / "model").is_dir():
        return run / "model"
    saved = sorted((run / "checkpoints").glob(f"step_*/models/{role}"))
    if not saved and role == "policy":
        raise UserError(f"{run} has no model yet: neither a final one nor a checkpoint")
    if not saved:
        raise UserError(f"{run} has no model in the role '{role}' in any checkpoint")
    return saved[-1]
