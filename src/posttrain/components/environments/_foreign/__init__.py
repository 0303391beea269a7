"""Environments of other libraries, as text: one adapter a library. They run in workers, never in the run's process.

An adapter turns what a library shows into a `Seen`, and the text of a turn into an action. What cannot be read is an
invalid turn, not an error. What the library raises is an error of the rollout.
"""

import importlib
import inspect
import json
import math
import random
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from posttrain.component.user_code import file_of, is_path, load_file
from posttrain.errors import UserError

LIBRARIES: Final = (
    *("gymnasium", "pettingzoo", "textarena", "gem", "textworld", "openenv", "mcp", "open_spiel"),
    *("tau2", "bfcl", "scienceworld", "verifiers", "plain"),
)
"""Modules of this package; ``plain`` is a class of the user's."""
PACKAGES: Final = {
    "gymnasium": "gymnasium",
    "pettingzoo": "pettingzoo",
    "textarena": "textarena",
    "gem": "gem",
    "textworld": "textworld",
    "openenv": "openenv.core",
    "mcp": "mcp",
    "open_spiel": "pyspiel",
    "tau2": "tau2",
    "scienceworld": "scienceworld",
    "verifiers": "verifiers.v1",
}
"""The module that each library is imported as."""
DOWN: Final = "down"
"""Key of an answer that has only why a server is down."""


class ServerDown(Exception):
    """A server does not come up, or does not answer, after all tries; the message has the last reason."""


@dataclass(kw_only=True)
class Seen:
    """What an action led to."""

    text: str = ""
    reward: float = 0.0
    terminated: bool = False
    truncated: bool = False
    valid: bool = True
    legal: Sequence[str] | None = None
    calls: int = 0
    """Tools that ran in this turn."""
    failed_calls: int = 0
    """Calls that could not be read, or whose tool failed."""
    request: list[dict[str, str]] | None = None
    """Messages of a user's context: what the user writes is to be sampled, and comes by `Adapter.reply`."""
    fault: str = ""
    """Name of what the user did that ends the episode as a failure."""
    other: float | None = None
    """At the end, the sum of rewards of the other player, where there is one."""


class Adapter:
    """An environment in one episode."""

    def reset(self, seed: int, fields: Mapping[str, Any]) -> Seen:
        """Start the episode in the state that the seed draws; `fields` are those of the task."""
        raise NotImplementedError

    def reseed(self, seed: int) -> None:
        """Draw what comes after the start by another seed. Python's and numpy's own draws are seeded already."""

    def step(self, action: str) -> Seen:
        """Perform the text of a turn."""
        raise NotImplementedError

    def reply(self, text: str) -> Seen:
        """Take what the user wrote."""
        raise NotImplementedError

    def value(self) -> float:
        """Reward of the whole episode, besides those of its turns."""
        return 0.0

    def snapshot(self) -> Any:
        """The state as plain data, from which `restore` goes on; None where the library has none."""
        return None

    def restore(self, state: Any) -> None:
        """Go on from a snapshot."""
        raise NotImplementedError

    def solution(self) -> str | None:
        """The next turn of the environment's own solver, if it has one."""
        return None

    def example(self) -> str | None:
        """A turn of the form that the environment shows, good or bad; None where it shows none."""
        return None

    def close(self) -> None:
        """Release resources."""


def make(source: str, arguments: Mapping[str, Any], view: str, calls: str) -> Adapter:
    """The adapter of a source."""
    library, name = split(source)
    module = importlib.import_module(f"{__name__}.{library}")
    made: Adapter = module.open_adapter(name, dict(arguments), view, calls)
    return made


def split(source: str) -> tuple[str, str]:
    """Library and name: ``library:name``, a class of the user's, or a bare id, which is Gymnasium's."""
    library, found, name = source.partition(":")
    if found and library in LIBRARIES:
        return library, name
    if source.endswith(".py") and library not in LIBRARIES:
        raise UserError(f"write {source}:CLASS, with the name of a class in that file")
    if not found or re.search(r"-v\d+$", source):
        return "gymnasium", source
    return "plain", source


def load(spelling: str) -> Any:
    """What ``file.py:name`` or ``package.module:name`` names. Raises `UserError`."""
    source, _, name = spelling.rpartition(":")
    if is_path(source):
        file = file_of(source)
        if not file.is_file():
            raise UserError(f"there is no file {file}")
        module = load_file(file, file.read_bytes())
    else:
        try:
            module = importlib.import_module(source)
        except ModuleNotFoundError as error:
            if error.name != source.partition(".")[0]:
                raise
            known = ", ".join(name for name in LIBRARIES if name != "plain")
            raise UserError(
                f"'{source}' is neither a module that is installed nor one of the libraries {known}; write "
                "file.py:Class for a class of your own"
            ) from None
    if not hasattr(module, name):
        raise UserError(f"{source} has no '{name}'")
    if not callable(getattr(module, name)):
        raise UserError(f"'{name}' of {source} is {getattr(module, name)!r:.40}; name a class or a function")
    return getattr(module, name)


def called(make: Any, arguments: Mapping[str, Any]) -> Any:
    """What a class or a function makes. Raises `UserError` for arguments that it does not take."""
    try:
        with suppress(ValueError):  # it has no signature
            inspect.signature(make).bind(**arguments)
    except TypeError as error:
        raise UserError(
            f"{make.__name__} cannot be called with its arguments {dict(arguments)}: {error}; give others, as in "
            "arguments={size: 3}"
        ) from None
    return make(**arguments)


def seed_draws(seed: int) -> None:
    """Seed the process-wide draws, which many libraries use: the process has no other episode."""
    random.seed(seed)
    np.random.seed(seed % 2**32)


def first_number(text: str) -> int | None:
    """The first whole number of a text."""
    found = re.search(r"-?\d{1,9}", text)
    return int(found[0]) if found else None


def written(value: Any) -> str:
    """A plain value as short text: numbers with four digits, arrays in brackets."""
    if isinstance(value, str):
        return value
    if isinstance(value, bytes | bytearray):
        raise TypeError("bytes were returned; a text is needed")
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float):
        return f"{value:.4g}"
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {written(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + " ".join(map(written, value)) + "]"
    if value is None:
        return ""
    return json.dumps(value) if isinstance(value, bool | int) else str(value)


def finite(value: Any) -> float:
    """A reward as a number. Raises `ValueError` for None, texts, NaN and infinity."""
    if isinstance(value, str | bytes | None):
        raise ValueError(f"the reward is {value!r}; a number is needed")
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"the reward is {number}")
    return number


def viewed(view: str, plain: Callable[[Any], str]) -> Callable[[Any], str]:
    """The function that makes text of an observation: the library's, or ``file.py:name`` of the user's."""
    if ":" not in view:
        return plain
    function = load(view)
    return lambda observation: written(function(observation))
