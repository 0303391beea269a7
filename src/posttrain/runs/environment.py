"""The environment of a run: versions, hardware, git, command line."""

import os
import platform
import subprocess
import sys
from collections.abc import Mapping
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any, Final

PACKAGES = (
    "posttrain",
    "torch",
    "numpy",
    "transformers",
    "tokenizers",
    "safetensors",
    "peft",
    "datasets",
    "reasoning-gym",
    "pydantic",
    "duckdb",
)

RECIPE: Final = "recipe"
"""Name of the resolved recipe in the environment of a run, in checkpoints, and in entries of the history that accept
another one."""
INSTRUCTIONS = ("avx2", "avx512f", "avx512_bf16", "amx_bf16", "asimd", "sve", "bf16", "i8mm")
"""Instructions that decide the speed and the rounding of products, by their names in Linux."""


def describe_environment(more: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Versions, machine, code and command line as JSON; `more` are entries of the caller (threads, device)."""
    return {
        "command": sys.argv,
        "folder": os.getcwd(),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": {name: version for name in PACKAGES if (version := _version(name))},
        "cpu": _cpu(),
        "instructions": _instructions(),
        "cores": available_cores(),
        "memory_bytes": _memory_bytes(),
        "git": describe_git(Path.cwd()),
        **(more or {}),
    }


def available_cores() -> int:
    """Cores that this process may use, which can be fewer than the machine has."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def describe_git(folder: Path) -> dict[str, Any] | None:
    """Commit of the repository around a folder, and whether tracked files differ from it; None outside of one."""
    commit = _git(folder, "rev-parse", "HEAD")
    if commit is None:
        return None
    changes = _git(folder, "status", "--porcelain", "--untracked-files=no")
    return {"commit": commit, "dirty": None if changes is None else bool(changes)}


def _git(folder: Path, *arguments: str) -> str | None:
    """Output of a git command; None when there is no git or it refuses."""
    try:
        done = subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


@cache
def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _cpu() -> str:
    """Model name of the processor."""
    return _cpuinfo("model name") or platform.processor() or platform.machine()


def _instructions() -> str:
    """Those of `INSTRUCTIONS` that the processor has: machines of one model may be given different ones."""
    has = (_cpuinfo("flags") or _cpuinfo("Features")).split()
    return " ".join(name for name in INSTRUCTIONS if name in has)


def _cpuinfo(name: str) -> str:
    """A field of the first processor in ``/proc/cpuinfo``; empty if there is none."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return ""
    return next((line.split(":", 1)[1].strip() for line in lines if line.partition(":")[0].strip() == name), "")


def _memory_bytes() -> int | None:
    """Memory of the machine."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return None
