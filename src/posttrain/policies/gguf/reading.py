"""A GGUF file as a model folder."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from torch import Tensor

from posttrain.errors import UserError
from posttrain.errors.foreign import shown
from posttrain.policies.folder import Folder, open_folder
from posttrain.policies.gguf.architecture import folder_rows, read_config, stored_names
from posttrain.policies.gguf.container import Container, read_container
from posttrain.policies.gguf.vocabulary import tokenizer_files


@dataclass(frozen=True)
class GGUFFolder(Folder):
    """A model folder whose config, tensors and tokenizer are in one GGUF file, which is `path`.

    Quantized tensors are float32, others have the type that they are stored in.
    """

    beside: Path | None = None
    """Folder of the file, whose ``tokenizer.json`` is taken instead of the file's tokenizer where it has one."""

    @cached_property
    def container(self) -> Container:
        """The header of the file."""
        return read_container(self.path)

    @cached_property
    def config(self) -> dict[str, Any]:
        """The config, from the metadata."""
        return read_config(self.container)

    @cached_property
    def config_bytes(self) -> bytes:
        """The config as it will be written."""
        return (json.dumps(self.config, indent=2, ensure_ascii=False) + "\n").encode()

    @cached_property
    def carried(self) -> dict[str, bytes]:
        """Tokenizer files and generation config."""
        if self.beside is not None and (self.beside / "tokenizer.json").is_file():
            return Folder(self.beside).carried
        return tokenizer_files(self.path, self.container.metadata)

    @cached_property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shape of every tensor by its name in a model folder."""
        return {name: self.container.entries[stored].shape for name, stored in self._names.items()}

    def tensors(self) -> Iterator[tuple[str, Tensor]]:
        """Every tensor by its name in a model folder, one at a time."""
        for name, stored in self._names.items():
            yield name, folder_rows(self.container.tensor(stored), name, self.config)

    @cached_property
    def _names(self) -> dict[str, str]:
        return stored_names(self.container, self.config)


def open_model(path: Path) -> Folder:
    """The model that a path names. Raises `UserError` with what is missing where it is none."""
    return find_gguf(path) or open_folder(path)


def find_gguf(path: Path) -> GGUFFolder | None:
    """The GGUF file that a path names, or the only one in a folder without other weights; None where there is none.

    Raises `UserError` for a folder that has several.
    """
    if path.is_file() and path.suffix.lower() == ".gguf":
        return GGUFFolder(path)
    if not path.is_dir() or any(path.glob("*.safetensors*")):
        return None
    found = sorted(file for file in path.iterdir() if file.suffix.lower() == ".gguf")
    if len(found) > 1:
        names = ", ".join(file.name for file in found[:6]) + (", ..." if len(found) > 6 else "")
        raise UserError(
            f"'{path}' holds {len(found)} GGUF files ({shown(names)}); name the one that is meant: "
            f"{path / found[0].name}"
        )
    return GGUFFolder(found[0], path) if found else None
