"""Make the virtual environment `.venv` of this checkout, or bring it up to date. Needs nothing but Python 3.11+.

    sh setup/install core      what `posttrain run` needs
    sh setup/install dev       that, every extra, and the tools of `make test`

torch goes first, so that nothing else pulls another build of it. On Linux without an NVIDIA GPU the CPU build is taken
(``torch==X+cpu``) from wherever pip is configured to look; where it is not available, what comes instead is printed
before it is downloaded. TORCH_INDEX names the index to take torch from.
"""

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
PYTHON = f"{sys.version_info[0]}.{sys.version_info[1]}"

GB = 1_000_000_000
ROOM = {"core": 1.6 * GB, "dev": 2.8 * GB}
"""Disk that an environment takes while it is being made, with the CPU build of torch."""
GPU_DOWNLOAD, GPU_ROOM = 2.7 * GB, 7 * GB
"""What the CUDA build of torch and its libraries add: over the network, and on the disk."""


PROGRAMS = {
    "bwrap": "bubblewrap",
    "setpriv": "util-linux",
    "gcc": "gcc",
    "g++": "g++",
    "node": "nodejs",
    "lua": "lua5.4",
    "perl": "perl",
    "python3": "python3",
    "valgrind": "valgrind",
    "iverilog": "iverilog",
}
"""Programs that rewards on the sandbox run, and the Debian packages that they come in."""


class Stop(Exception):
    """Set-up cannot go on; the message is one clear sentence."""


def main(target: str) -> None:
    """Install `target`, ``core`` or ``dev``, into the checkout's `.venv`, unless that has been done already."""
    environment = ROOT / ".venv"
    index = os.environ.get("TORCH_INDEX", "")
    extras = {"core": "", "dev": "[dev,reasoning-gym]" if can_compile() else "[dev]"}
    keys = {name: fingerprint(extras[name], index) for name in extras}
    stamp = environment / "installed"
    fault = fault_of(environment)
    if not fault and stamp.exists() and keys[target] in stamp.read_text().split():
        return
    started = time.monotonic()
    need_room(environment.parent, ROOM[target])
    stamp.unlink(missing_ok=True)
    if fault:
        say(f"making .venv with Python {sys.version.split()[0]} ({fault})")
        make_environment(environment)
    pip = Pip(environment)
    pip.install("setuptools")
    install_torch(pip, pinned_version("torch"), gpu=has_nvidia_gpu(), index=index)
    if target == "dev" and extras["dev"] == "[dev]":
        say("leaving out reasoning-gym and its tests: it needs a C compiler (on Debian: apt install gcc python3-dev)")
    say(f"installing posttrain{extras[target]} and what it needs")
    pip.install("--no-build-isolation", "--use-pep517", "--editable", f"{ROOT}{extras[target]}")
    if target == "dev":
        install_programs()
    stamp.write_text("\n".join([keys["core"], keys[target]]) + "\n")
    say(f"ready after {time.monotonic() - started:.0f} s")


def say(text: str) -> None:
    """Print one line of progress."""
    print(f"setup: {text}", flush=True)


def fingerprint(extras: str, index: str) -> str:
    """One word that changes with everything that decides what the environment should hold."""
    files = [(ROOT / name).read_text() for name in ("pyproject.toml", "constraints.txt", "setup/install.py")]
    return hashlib.sha256("\0".join([str(ROOT), PYTHON, extras, index, *files]).encode()).hexdigest()[:32]


def pinned_version(package: str) -> str:
    """The version of a package in constraints.txt."""
    found = re.search(rf"^{package}==(\S+)$", (ROOT / "constraints.txt").read_text(), flags=re.MULTILINE)
    assert found, f"constraints.txt pins {package}"
    return found[1]


def can_compile() -> bool:
    """Whether packages that come as C sources can be installed."""
    return bool(shutil.which("cc")) and Path(sysconfig.get_path("include"), "Python.h").exists()


def has_nvidia_gpu() -> bool:
    """Whether this machine has an NVIDIA GPU with a driver."""
    if Path("/proc/driver/nvidia/version").exists():
        return True
    command = shutil.which("nvidia-smi")
    return bool(command) and subprocess.run([str(command), "-L"], capture_output=True).stdout.startswith(b"GPU")


def need_room(folder: Path, needed: float) -> None:
    """Raise `Stop` unless the folder's disk, and that of temporary files, have room."""
    for place, amount in ((folder, needed), (Path(tempfile.gettempdir()), needed / 3)):
        free = shutil.disk_usage(place).free
        if free < amount:
            raise Stop(f"set-up needs {amount / GB:.1f} GB of free disk in {place}, and there are {free / GB:.1f} GB")


def fault_of(environment: Path) -> str:
    """Why the environment cannot be used as it is; empty when it can."""
    if not environment.exists():
        return "there is none"
    if not (environment / "pyvenv.cfg").exists():
        raise Stop(f"{environment} is not a virtual environment; move it away")
    if Path(sys.prefix) == environment:
        return ""
    command = [str(environment / "bin" / "python"), "-c", "import pip, sys; print('%d.%d' % sys.version_info[:2])"]
    try:
        found = subprocess.run(command, capture_output=True, text=True).stdout.strip()
    except OSError:
        found = ""
    if not found:
        return "the one there does not work"
    return "" if found == PYTHON else f"the one there is for Python {found}"


def make_environment(environment: Path) -> None:
    """Make an empty virtual environment, in place of what was there."""
    made = subprocess.run([sys.executable, "-m", "venv", "--clear", environment], capture_output=True, text=True)
    if made.returncode:
        raise Stop(f"'{sys.executable} -m venv' failed: {last_line(made.stdout + made.stderr)}")


class Pip:
    """The environment's pip, held to constraints.txt, with its output in a log file."""

    def __init__(self, environment: Path):
        self.python = environment / "bin" / "python"
        self.log = environment / "install.log"
        self.log.write_text("")

    def install(self, *arguments: str) -> None:
        """Install; raises `Stop` with one sentence that states what went wrong."""
        output = self._run(*arguments)
        if output is not None:
            raise Stop(f"{explain(output)}; pip's own words are in {self.log}")

    def has(self, requirement: str, *options: str) -> bool:
        """Try to install something that may not exist; False where no index has it."""
        output = self._run("--no-deps", requirement, *options, constrained=False)
        if output is None:
            return True
        if f"No matching distribution found for {requirement}" in output and "(from versions: none)" not in output:
            return False
        raise Stop(f"{explain(output)}; pip's own words are in {self.log}")

    def report(self, requirement: str) -> Mapping[str, Any]:
        """What pip would install for one requirement, its own needs aside: pip's installation report."""
        path = self.log.with_suffix(".json")
        self.install("--dry-run", "--no-deps", "--report", str(path), requirement)
        report: Mapping[str, Any] = json.loads(path.read_text())
        path.unlink()
        return report

    def _run(self, *arguments: str, constrained: bool = True) -> str | None:
        """Run ``pip install``; None when it went well, else what it printed."""
        command = [str(self.python), "-m", "pip", "install", "--disable-pip-version-check", "--no-input"]
        command += ["--progress-bar=off", *arguments]
        command += ["--constraint", str(ROOT / "constraints.txt")] if constrained else []
        variables = {**os.environ, "PIP_USER": "0", "LC_ALL": "C.UTF-8"}
        done = subprocess.run(command, env=variables, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        with self.log.open("a") as log:
            log.write(f"$ pip install {' '.join(arguments)}\n{done.stdout}\n")
        return done.stdout if done.returncode else None


def install_torch(pip: Pip, version: str, *, gpu: bool, index: str) -> None:
    """Install the build of torch that suits the machine, without its libraries' sources: those follow."""
    where = ["--index-url", index] if index else []
    if gpu or sys.platform != "linux":
        say(f"installing torch {version}{' for this GPU' if gpu else ''}")
        return pip.install("--no-deps", f"torch=={version}" if index or not gpu else f"torch==={version}", *where)
    say(f"installing torch {version}, the CPU build")
    if pip.has(f"torch=={version}+cpu", *where):
        return None
    if index:
        raise Stop(f"TORCH_INDEX={index} has no CPU build of torch {version} for Python {PYTHON}")
    if gpu_packages(pip.report(f"torch=={version}")):
        say(
            f"no index that pip is configured with has a CPU build of torch {version} for Python {PYTHON}. The build "
            f"there brings GPU libraries, {GPU_DOWNLOAD / GB:.1f} GB to download. To avoid it, press Ctrl-C and give "
            "the address of PyTorch's CPU wheels: make ... TORCH_INDEX=<address> (README, Installation)"
        )
        need_room(pip.python.parent, GPU_ROOM)
    return pip.install("--no-deps", f"torch=={version}")


def install_programs() -> None:
    """Install what running untrusted programs needs, and the languages of its tests: by apt, where this is root."""
    missing = sorted({package for program, package in PROGRAMS.items() if not shutil.which(program)})
    if not missing:
        return
    if os.geteuid() != 0 or not shutil.which("apt-get"):
        say(f"leaving out tests that need {', '.join(missing)} (on Debian, as root: apt install {' '.join(missing)})")
        return
    say(f"installing {', '.join(missing)}, for the sandbox and its tests")
    variables = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    install = ["apt-get", "install", "-y", "-q", "--no-install-recommends"]
    for command in (["apt-get", "update", "-q"], *([*install, name] for name in missing)):
        done = subprocess.run(command, env=variables, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if left := sorted({package for program, package in PROGRAMS.items() if not shutil.which(program)}):
        say(f"could not install {', '.join(left)}: {last_line(done.stdout)}; their tests are left out")


def gpu_packages(report: Mapping[str, Any]) -> list[str]:
    """Names of the GPU libraries that the packages of an installation report need."""
    needs = [need for item in report["install"] for need in item["metadata"].get("requires_dist", [])]
    names = [re.match(r"[\w.-]+", need) for need in needs if "extra ==" not in need]
    return [name[0] for name in names if name and name[0].lower().startswith(("nvidia-", "cuda-"))]


CAUSES = [
    (r"No space left on device", "the disk is full"),
    (
        r"Temporary failure in name resolution|Name or service not known|Failed to establish a new connection"
        r"|Network is unreachable|Connection refused|Connection reset|[Tt]imed out|ProxyError|SSLError",
        "the package index does not answer: check the network, and the index that `pip config list` shows",
    ),
    (r"Permission denied|Read-only file system", "a file could not be written: check who owns this checkout"),
    (r"error: command '\S+' failed|Python\.h: No such file", "a package could not be compiled (needs a C compiler)"),
    (
        r"No matching distribution found for (\S+)",
        rf"no index that pip is configured with has {{0}} for Python {PYTHON} on this machine",
    ),
]
"""Patterns in what pip prints, the first that is found counts, and what each means."""


def explain(output: str) -> str:
    """One sentence for a failure of pip."""
    for pattern, meaning in CAUSES:
        if found := re.search(pattern, output):
            return meaning.format(*found.groups())
    return f"pip failed: {last_line(output)}"


def last_line(output: str) -> str:
    """The last line that is not empty."""
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    return lines[-1] if lines else "it printed nothing"


def run(arguments: Sequence[str]) -> int:
    """Exit code of the command: 0 done, 1 failed, 2 called wrongly, 130 interrupted."""
    if list(arguments) not in (["core"], ["dev"]):
        print("usage: sh setup/install core|dev", file=sys.stderr)
        return 2
    try:
        main(arguments[0])
    except Stop as stop:
        print(f"error: {stop}.", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"error: set-up could not write to this checkout: {error}.", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nerror: interrupted; the same command goes on from here.", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
