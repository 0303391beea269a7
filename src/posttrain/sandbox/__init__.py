"""Runs untrusted programs with limits, without network, secrets or access to the machine.

    pool = sandbox.open_pool()
    result = pool.run(Job(command=("lua5.4", "main.lua"), files={"main.lua": code}, stdin=b"1 2"), Limits(cpu_s=2))
    result.outcome      # ok, nonzero, timeout_cpu, timeout_wall, memory, output_limit or sandbox_error

Output is compared with expected results outside of the sandbox; expected results never enter it. Exit codes and output
are claims of the program. The tier of isolation of this machine is found by attacking it (`posttrain.sandbox.tiers`,
``posttrain sandbox``); a weaker one is used only where that was allowed by name.
"""

import threading
from typing import Any

from posttrain.sandbox.job import BOX, Job, Limits, Outcome, Result
from posttrain.sandbox.launch import Tier, missing_programs, python_job
from posttrain.sandbox.pool import Pool, usable_cores, usual_slots
from posttrain.sandbox.shells import Shell
from posttrain.sandbox.tiers import find_tier, require

__all__ = [
    "BOX",
    "Job",
    "Limits",
    "Outcome",
    "Pool",
    "Result",
    "Shell",
    "Tier",
    "environment",
    "find_tier",
    "missing_programs",
    "open_pool",
    "python_job",
    "usable_cores",
]

_pools: dict[tuple[Tier, int], Pool] = {}
_opening = threading.Lock()


def open_pool(weakest: Tier = "cgroup", *, slots: int | None = None) -> Pool:
    """The pool that this process shares; one of `slots`, which fork from the same interpreters, where these hold much
    memory. Raises `UserError` where the machine's tier is weaker than allowed.
    """
    with _opening:
        tier, count = require(weakest), slots or usual_slots()
        if (tier, count) not in _pools:
            forks = not find_tier().why_no_forks
            _pools[tier, count] = Pool(tier, count, forks=forks, one_server=slots is not None)
        return _pools[tier, count]


def environment() -> dict[str, Any]:
    """The sandbox's entry in the record of a run; empty where none was opened."""
    return {"sandbox": find_tier().record()} if _pools else {}
