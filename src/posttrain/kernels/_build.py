"""Compiles the C++ files of this folder once for this machine's processor, and loads them.

The compiled library is in the user's cache folder, named by a hash of the source, the compiler and its flags, and the
processor's instructions. Machines that share a home do not run each other's code.
"""

import ctypes
import hashlib
import os
import platform
import shutil
import subprocess
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

SOURCES: Final = tuple(sorted(p for p in Path(__file__).parent.iterdir() if p.suffix in (".cpp", ".h")))
FLAGS: Final = (
    *("-O3", "-march=native", "-std=c++17", "-fPIC", "-fopenmp"),
    *("-ffp-contract=fast", "-fno-math-errno", "-fno-trapping-math"),
    *(("-mprefer-vector-width=512",) if platform.machine() == "x86_64" else ()),
)
SWITCH: Final = "POSTTRAIN_KERNELS"
"""Environment variable: ``off`` selects the operations of torch."""
COMPILE_S: Final = 120.0


@dataclass(frozen=True, slots=True)
class Built:
    """The kernels, or the reason why there are none."""

    library: ctypes.CDLL | None
    why_not: str = ""


@cache
def built() -> Built:
    """The kernels of this process, cached."""
    if os.environ.get(SWITCH, "on") == "off":
        return Built(None, f"switched off by {SWITCH}=off")
    if platform.system() != "Linux":
        return Built(None, f"they are made for Linux, and this is {platform.system()}")
    compiler = shutil.which(os.environ.get("CXX", "c++")) or shutil.which("g++")
    if compiler is None:
        return Built(None, "there is no C++ compiler (on Debian: apt install g++)")
    try:
        return Built(ctypes.CDLL(str(_compiled(compiler))))
    except subprocess.SubprocessError as error:
        output = getattr(error, "stderr", b"") or str(error).encode()
        return Built(None, f"{compiler} does not compile them: {output.decode(errors='replace').strip()[:500]}")
    except OSError as error:
        return Built(None, f"they cannot be stored or loaded: {error}")


def folder() -> Path:
    """The cache folder of compiled kernels."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "posttrain" / "kernels"


def _compiled(compiler: str) -> Path:
    """The library's file, compiled now if it is missing."""
    stat = Path(compiler).resolve().stat()
    sources = [source.read_bytes() for source in SOURCES]
    made_of = (*sources, repr(FLAGS), compiler, f"{stat.st_size} {stat.st_mtime_ns}", _instructions())
    name = hashlib.sha256("\0".join(map(repr, made_of)).encode()).hexdigest()[:16] + ".so"
    path = folder() / name
    if path.is_file():
        return path
    folder().mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(dir=folder()) as place:
        files = [source for source in SOURCES if source.suffix == ".cpp"]
        objects = [Path(place) / f"{file.stem}.o" for file in files]
        made = Path(place) / name
        with ThreadPoolExecutor() as pool:  # one compiler for each file
            commands = ([compiler, *FLAGS, "-c", str(f), "-o", str(o)] for f, o in zip(files, objects, strict=True))
            list(pool.map(_run, commands))
        _run([compiler, *FLAGS, "-shared", *map(str, objects), "-o", str(made)])
        os.replace(made, path)  # atomic, also if two processes compile at the same time
    return path


def _run(command: Sequence[str]) -> None:
    subprocess.run(command, check=True, capture_output=True, timeout=COMPILE_S)


def _instructions() -> str:
    """The processor's features, as reported by the operating system."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.machine()
    return next((line for line in lines if line.startswith(("flags", "Features"))), platform.machine())
