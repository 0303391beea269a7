"""Limits how long threads of a matrix product spin for one another; must run before torch is imported.

Threads that share a matrix product spin until the last one is done, by default for some fifteen milliseconds. Where
other processes want the cores too, the last one is often not running at all, and the time that it needs goes by in
spinning: beside one busy process, a learning step of two threads took three to six times as long as alone, where twice
is fair. Rewards that run programs beside sampling are such processes.
"""

import os
from collections.abc import MutableMapping
from typing import Final

SPIN: Final = "20000"
"""Turns of a waiting loop, about a millisecond: with fewer, threads that are alone lose time by falling asleep."""
OWN_SETTINGS: Final = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")
"""Environment variables by which users set it themselves."""


def wait_briefly(environment: MutableMapping[str, str] = os.environ) -> None:
    """Make threads yield their core soon, unless the environment sets it; inherited by child processes."""
    if not any(name in environment for name in OWN_SETTINGS):
        environment["GOMP_SPINCOUNT"] = SPIN
