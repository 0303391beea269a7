"""Models of the Hugging Face hub: ``owner/name``, or ``owner/name@revision``.

They are kept in the cache of ``huggingface_hub`` and shared with other programs. Weights in safetensors, settings,
tokenizers and chat templates are downloaded, and nothing that could be code. A run records the revision, so that the
same weights are read again, without a connection if they are in the cache.
"""

import os
import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, TypeVar

from posttrain.errors import RunFailed, UserError
from posttrain.errors.foreign import read_json, shown

T = TypeVar("T")
SECONDS: Final = 4.5
"""Longest wait for the first answer of the hub."""
SETTINGS: Final = ("*.json", "*.jinja", "*.txt", "tokenizer.model")
FILES: Final = ("*.safetensors", *SETTINGS)
"""Files that a model is read from; those in folders of a repository are for other programs."""
FETCHED: Final = {"smollm2": "models/smollm2"}
"""Models that ``posttrain fetch`` downloads, and the folder of each, which is no repository of the hub."""
_NAME = re.compile(r"(?P<name>(?P<owner>\w[\w.-]{0,95})/\w[\w.-]{0,95})(@(?P<revision>[\w./-]{1,200}))?")
_COMMIT = re.compile(r"[0-9a-f]{40}")


def is_hub_name(source: str) -> bool:
    """Whether a model's source is a repository of the hub: ``owner/name``, where no folder ``owner`` is."""
    found = _NAME.fullmatch(source) if source not in FETCHED.values() else None
    return found is not None and not Path(found["owner"]).exists() and not Path(source).exists()


def split(source: str) -> tuple[str, str | None]:
    """The repository and the revision of a source."""
    name, _, revision = source.partition("@")
    return name, revision or None


def pinned(source: str) -> str:
    """``owner/name@commit``: what a source stands for now, for the record of a run."""
    name, revision = split(source)
    if revision is not None and _COMMIT.fullmatch(revision):
        return source
    return f"{name}@{download(source).name}"


def download(source: str, files: tuple[str, ...] = FILES) -> Path:
    """The folder of a model in the cache, downloaded where it is not there, with progress on standard error.

    Raises `UserError` where there is no such repository, or, within five seconds, no connection and no copy.
    """
    name, revision = split(source)
    if revision is not None and _COMMIT.fullmatch(revision) and (kept := _kept(name, revision, files)):
        return kept
    api = _api()
    try:
        commit = within(SECONDS, lambda: api.model_info(name, revision=revision, timeout=SECONDS - 0.5).sha)
    except Exception as error:
        kept = _kept(name, revision, files) if _is_unreachable(error) else None
        if kept is not None:
            return kept
        raise UserError(_explain(source, error)) from None
    if kept := _kept(name, commit, files):
        return kept
    try:
        return Path(_snapshot(name, revision, files, local=False))
    except Exception as error:
        raise UserError(_explain(source, error)) from None


def within(seconds: float, call: Callable[[], T]) -> T:
    """The result of a call, which may wait for a name or a proxy longer than its own time limit.

    Raises `TimeoutError` after that many seconds; the call is then left alone.
    """
    results: list[T] = []
    failures: list[BaseException] = []

    def work() -> None:
        try:
            results.append(call())
        except BaseException as error:
            failures.append(error)

    worker = threading.Thread(target=work, daemon=True)
    worker.start()
    worker.join(seconds)
    if failures:
        raise failures[0]
    if not results:
        raise TimeoutError(f"no answer within {seconds:.0f} s")
    return results[0]


def check_push(repository: str) -> None:
    """Raise `UserError`, within five seconds, where nobody is logged in who could push a model."""
    api = _api()
    try:
        within(SECONDS, api.whoami)
    except Exception as error:
        reason = (
            f"the hub at {endpoint()} cannot be reached: {_first_line(error)}"
            if _is_unreachable(error) and not _wants_token(error)
            else f"the hub at {endpoint()} needs a token that may write: hf auth login, or HF_TOKEN=..."
        )
        raise UserError(
            f"push is '{repository}', so the model would be pushed at the end, but {reason}. Or leave push out"
        ) from None


def push(folder: Path, repository: str, message: str) -> str:
    """Upload a model folder, into a private repository where there is none yet; returns its address.

    Raises `RunFailed` for a push that fails.
    """
    api = _api()
    try:
        api.create_repo(repository, private=True, exist_ok=True)
        api.upload_folder(repo_id=repository, folder_path=folder, commit_message=message)
    except Exception as error:
        raise RunFailed(
            f"{folder} could not be pushed to '{repository}' at {endpoint()}: {_first_line(error)}"
        ) from None
    return f"{endpoint()}/{repository}"


def endpoint() -> str:
    """Address of the hub; the environment variable HF_ENDPOINT names another one."""
    return os.environ.get("HF_ENDPOINT", "https://huggingface.co").rstrip("/")


def _api() -> Any:
    from huggingface_hub import HfApi

    return HfApi(endpoint=endpoint())


def _snapshot(name: str, revision: str | None, files: tuple[str, ...], *, local: bool) -> str:
    from huggingface_hub import snapshot_download

    found: str = snapshot_download(
        name,
        revision=revision,
        endpoint=endpoint(),
        allow_patterns=list(files),
        ignore_patterns=["*/*"],
        local_files_only=local,
    )
    return found


def _kept(name: str, revision: str | None, files: tuple[str, ...]) -> Path | None:
    """The folder in the cache, if all files of the model are there; settings alone need no weights."""
    try:
        folder = Path(_snapshot(name, revision, files, local=True))
    except Exception:
        return None
    if not (folder / "config.json").is_file() and not (folder / "adapter_config.json").is_file():
        return None
    if "*.safetensors" not in files:
        return folder
    index = folder / "model.safetensors.index.json"
    try:
        named = set(read_json(index)["weight_map"].values()) if index.is_file() else set()
    except (UserError, LookupError, AttributeError, TypeError):
        named = set()
    there = {path.name for path in folder.glob("*.safetensors") if path.is_file()}
    return folder if there and named <= there else None


def _is_unreachable(error: BaseException) -> bool:
    """Whether the hub did not answer; an answer that it has no such model is one."""
    status = _status(error)
    if status is not None:
        return status == 429 or status >= 500
    return isinstance(error, OSError) or type(error).__module__.partition(".")[0] in ("httpx", "httpx2", "requests")


def _wants_token(error: BaseException) -> bool:
    """Whether there is no token, which is found out without a connection."""
    return type(error).__name__ == "LocalTokenNotFoundError"


def _first_line(error: BaseException) -> str:
    return shown(str(error).strip().partition("\n")[0], 200) or type(error).__name__


def _status(error: BaseException) -> int | None:
    response = getattr(error, "response", None)
    return getattr(response, "status_code", None)


def _explain(source: str, error: BaseException) -> str:
    """What went wrong, and what to do."""
    name, revision = split(source)
    here = f"there is no folder '{source}' here (working in {Path.cwd()}), and"
    if _is_unreachable(error):
        return (
            f"{here} the Hugging Face hub at {endpoint()} cannot be reached: {_first_line(error)}. Without a "
            "connection, copy the model here and name its folder, or take one that is bundled: pebble"
        )
    what = f"'{name}'" + (f" with the revision '{revision}'" if revision else "")
    if type(error).__name__ == "GatedRepoError":
        return (
            f"{here} {what} of the hub is given to those who accept its terms: {endpoint()}/{name}, then HF_TOKEN=..."
        )
    if _status(error) is None:
        return f"{here} {what} of the hub at {endpoint()} cannot be downloaded: {shown(error, 300)}"
    return (
        f"{here} the hub at {endpoint()} has no model {what}, or it is private (status {_status(error)}); a token of "
        "one's own is given by hf auth login or HF_TOKEN"
    )
