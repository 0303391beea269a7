"""Finds the strongest isolation tier of this machine, by attacking it.

    cgroup       bubblewrap, seccomp and control groups; as root, a user of its own for every job
    namespaces   the same without control groups, by user namespaces
    landlock     Landlock, seccomp and limits of single processes, where there are no user namespaces
    none         limits of single processes and an empty environment, nothing else

A tier is used only after the start-up attacks (`attacks.at_startup`) have failed against it. The same holds for forked
warm Python jobs (`posttrain.sandbox.warm`), which are otherwise started like other jobs. A tier that does not contain
everything is used only where it was allowed by name: the field ``weakest`` of a reward, or the variable
POSTTRAIN_SANDBOX_WEAKEST.
"""

import os
import shutil
import stat
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final, get_args

from posttrain.errors import UserError
from posttrain.sandbox import attacks, filters, guard
from posttrain.sandbox.launch import PATH, Tier
from posttrain.sandbox.pool import Pool
from posttrain.sandbox.warm import no_forks

TIERS: Final[tuple[Tier, ...]] = get_args(Tier)
VARIABLE: Final = "POSTTRAIN_SANDBOX_WEAKEST"

_SAMPLED = {
    "memory": "memory of all processes together is sampled every 20 ms, not bounded",
    "cpu": "processor time of all processes together is sampled every 20 ms, without processes that are not waited for",
}
_NO_NAMESPACES = {
    **_SAMPLED,
    "disk": "every file is bounded, not their number",
    "leftovers": "a process that kills its guard outlives the job where Landlock is older than version 6",
}
NOT_HELD: Final[Mapping[Tier, Mapping[str, str]]] = {
    "cgroup": {},
    "namespaces": _SAMPLED,
    "landlock": _NO_NAMESPACES,
    "none": {
        **_NO_NAMESPACES,
        "files": "everything that this user may read can be read",
        "writes": "everything that this user may write can be written",
        "network": "the network can be reached",
        "processes": "other processes of this user can be stopped and read, and their number is bounded by user",
        "kernel": "every system call may be made",
        "secrets": "memory and environment of this user's processes can be read",
        "leftovers": "processes outlive the job",
    },
}
"""By tier, the `attacks.PROMISES` that it does not keep, and to what extent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """The strongest tier of this machine."""

    tier: Tier
    why_not: Mapping[Tier, str]
    """Why each stronger one is not available."""
    why_no_forks: str = ""
    """Why warm Python jobs are started like other jobs; empty where they are forked."""

    @property
    def sentence(self) -> str:
        """The tier, and what it does not contain."""
        lacks = NOT_HELD[self.tier]
        return f"tier '{self.tier}'" + (": " + "; ".join(lacks.values()) if lacks else " contains everything")

    def record(self) -> dict[str, Any]:
        """For the record of a run."""
        return {
            "tier": self.tier,
            "not_held": dict(NOT_HELD[self.tier]),
            "stronger_tiers": dict(self.why_not),
            "warm_jobs": f"started, not forked: {self.why_no_forks}" if self.why_no_forks else "forked",
        }


@cache
def find_tier() -> Finding:
    """The strongest tier that withstands the start-up attacks; found once per process."""
    why_not: dict[Tier, str] = {}
    for tier in TIERS[:-1]:
        reason = obstacle(tier) or weakness(tier)
        if not reason:
            return Finding(tier=tier, why_not=why_not, why_no_forks=no_forks(tier) or weakness(tier, warm=True))
        why_not[tier] = reason
    return Finding(tier="none", why_not=why_not, why_no_forks=no_forks("none"))


def obstacle(tier: Tier) -> str:
    """Why a tier cannot be used at all; empty where it can."""
    if tier == "none":
        return ""
    if not filters.supported():
        return "the system calls of this processor are not known to the sandbox"
    if tier == "landlock":
        try:
            guard.version()
        except OSError as error:
            return f"the kernel has no Landlock ({error})"
        return _unreachable() if os.getuid() == 0 else ""
    missing = [name for name in ("bwrap", "setpriv") if not shutil.which(name, path=PATH)]
    if missing:
        return f"{' and '.join(missing)} not installed (on Debian: apt install bubblewrap util-linux)"
    return ""


def _unreachable() -> str:
    """Why this Python cannot be run by another user; empty where it can."""
    for folder in Path(sys.executable).resolve().parents:
        if not folder.stat().st_mode & stat.S_IXOTH:
            return f"this Python is in {folder}, which the users that jobs run as may not enter"
    return ""


def weakness(tier: Tier, *, warm: bool = False) -> str:
    """The first start-up attack that a tier does not withstand, with warm jobs or others; empty where it withstands
    all.
    """
    try:
        pool = Pool(tier, 1)
    except OSError as error:
        return str(error)
    try:
        for finding in attacks.run(pool, attacks.at_startup(NOT_HELD[tier]), warm=warm):
            if finding.verdict != "contained":
                return f"the attack '{finding.attack}' was not contained: {finding.explanation}"
    finally:
        pool.close()
    return ""


def require(weakest: Tier) -> Tier:
    """The tier to use. Raises `UserError` where it would be weaker than what was allowed."""
    allowed = os.environ.get(VARIABLE, weakest)
    if allowed not in TIERS:
        raise UserError(f"{VARIABLE}={allowed}: there is no such tier; one of {', '.join(TIERS)}")
    found = find_tier()
    if TIERS.index(found.tier) <= max(TIERS.index(weakest), TIERS.index(allowed)):
        return found.tier
    reasons = "\n".join(f"  {tier}: {reason}" for tier, reason in found.why_not.items())
    raise UserError(
        f"programs that a model wrote would run here in a sandbox of {found.sentence}.\n"
        f"Stronger tiers are not available:\n{reasons}\n"
        f"To run nevertheless, set the reward's field weakest={found.tier}, or {VARIABLE}={found.tier}"
    )
