"""Generates entries of reasoning-gym in a separate process, so that they are reproducible.

Some of the library's data sets depend on the order of a set of texts, which changes with Python's hash seed; some use
the global random generators. Here the hash seed is fixed and the generators are seeded for each entry. `draw` starts
``python -m posttrain.datasets.draw_entries``, which reads a request and writes a pickle.
"""

import contextlib
import json
import os
import pickle
import random
import subprocess
import sys
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from posttrain.datasets.extras import extra
from posttrain.datasets.values import plain
from posttrain.errors import UserError

Wanted = tuple[str, int, Mapping[str, Any]]
"""Name of a data set, number of entries, settings."""


def draw(wanted: Sequence[Wanted], seed: int) -> list[list[dict[str, Any]]]:
    """The entries of each data set. Raises `UserError` if the library does not accept the settings."""
    command = [sys.executable, "-P", "-m", __name__]
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    request = json.dumps([wanted, seed]).encode()
    done = subprocess.run(command, input=request, capture_output=True, env=environment, check=False)
    if done.returncode:
        raise UserError(f"reasoning-gym could not be run: {done.stderr.decode(errors='replace')[-500:]}")
    drawn: list[list[dict[str, Any]]] | str = pickle.loads(done.stdout)
    if isinstance(drawn, str):
        raise UserError(drawn)
    return drawn


def _entries(name: str, size: int, settings: Mapping[str, Any], seed: int) -> list[dict[str, Any]] | str:
    """Entries 0 to size - 1, or the text of an error if the library fails."""
    factory = extra("reasoning_gym", "reasoning-gym").factory
    try:
        _seed_global_generators(seed, -1)
        dataset = factory.create_dataset(name, size=size, seed=seed, **settings)
    except Exception as error:
        return f"reasoning-gym data set '{name}' does not accept {dict(settings)}: {error}"
    entries = []
    for index in range(size):
        _seed_global_generators(seed, index)
        try:
            entries.append(plain(dataset[index]))
        except Exception as error:
            return f"reasoning-gym data set '{name}' could not make entry {index}: {type(error).__name__}: {error}"
    return entries


def _seed_global_generators(seed: int, index: int) -> None:
    random.seed(f"{seed}:{index}")
    np.random.seed(random.getrandbits(32))


def main() -> None:
    """Serve one request."""
    wanted, seed = json.load(sys.stdin)
    with contextlib.redirect_stdout(sys.stderr):  # the library may print
        drawn = [_entries(name, size, settings, seed) for name, size, settings in wanted]
    failures = [result for result in drawn if isinstance(result, str)]
    sys.stdout.buffer.write(pickle.dumps(failures[0] if failures else drawn))


if __name__ == "__main__":
    main()
