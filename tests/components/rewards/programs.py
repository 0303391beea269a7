"""What the tests of rewards that run programs share: the sandbox that is here, or a reason to skip."""

import os
import resource

import pytest

from posttrain.sandbox import Tier, find_tier, missing_programs
from posttrain.sandbox.processes import TICKS, descendants


def tier_for(*programs: str) -> Tier:
    """The tier of this machine; skips the test where there is none, or one of the programs is not installed."""
    found = find_tier()
    if found.tier == "none":
        pytest.skip(f"no sandbox here: {found.why_not}")
    if missing := missing_programs(programs):
        pytest.skip(f"needs {' and '.join(missing)}")
    return found.tier


def spent() -> float:
    """Seconds of processor time of all processes that this one has started, and of theirs."""
    total = sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])
    for process in {*descendants(os.getpid())} - {os.getpid()}:
        try:
            with open(f"/proc/{process}/stat") as file:
                total += sum(map(int, file.read().rpartition(")")[2].split()[11:15])) / TICKS
        except (FileNotFoundError, ProcessLookupError):
            pass
    return total
