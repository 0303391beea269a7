"""The checks of `posttrain doctor`."""

import importlib.metadata
import os
import platform
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from posttrain.errors import PosttrainError

GB = 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """The result of one check."""

    name: str
    status: Literal["ok", "warn", "fail"]
    found: str
    advice: str = ""
    """What to do; empty if nothing."""


def checks() -> Iterator[Check]:
    """Runs every check in order. One that raises an error fails, with the reason."""
    yield _result("python", check_python)
    yield _result("torch", check_torch)
    yield _result("processor", check_processor)
    yield _result("kernels", check_kernels)
    yield _result("memory", check_memory)
    yield _result("disk", check_disk)
    yield _result("write access", check_write_access)
    yield _result("gpu", check_gpu)
    yield _result("sandbox", check_sandbox)
    for extra, packages in extras().items():
        yield check_extra(extra, packages)
    yield _result("model", check_model)
    yield _result("speed", check_speed)


def _result(name: str, check: Callable[[], Check]) -> Check:
    """The result of a check, or a failure where it raises an error."""
    try:
        return check()
    except Exception as error:  # any error is a finding
        found = str(error) if isinstance(error, PosttrainError) else f"{type(error).__name__}: {error}"
        return Check(name=name, status="fail", found=found)


def check_python() -> Check:
    """The interpreter's version."""
    version, found = sys.version_info[:2], f"{platform.python_version()} ({sys.executable})"
    if version > (3, 13):
        return Check(name="python", status="warn", found=found, advice="tested with Python 3.11 to 3.13")
    return Check(name="python", status="ok", found=found)


def check_torch() -> Check:
    """The build of torch, and whether it computes."""
    import torch

    build = f"CUDA {torch.version.cuda}" if torch.version.cuda else "CPU build"
    found = f"{torch.__version__} ({build}), {torch.get_num_threads()} threads"
    if float(torch.ones(2, 2).matmul(torch.ones(2, 2)).sum()) != 8.0:
        return Check(name="torch", status="fail", found=f"{found} cannot multiply", advice="install torch again")
    return Check(name="torch", status="ok", found=found)


def check_processor() -> Check:
    """The number of usable cores."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    found = f"{usable} of {os.cpu_count()} cores, {platform.machine()}"
    if usable == 1:
        return Check(name="processor", status="warn", found=found, advice="two cores are about twice as fast")
    return Check(name="processor", status="ok", found=found)


def check_kernels() -> Check:
    """The compiled parts of the decoder; without them decoding on the CPU is only slower."""
    from posttrain import kernels

    found = kernels.status()
    if found == "compiled":
        return Check(name="kernels", status="ok", found=f"compiled for this processor, kept in {kernels.folder()}")
    return Check(name="kernels", status="warn", found=found, advice="models run on the CPU, only slower")


def check_memory() -> Check:
    """Free memory, within the container's limit."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    free = total
    if (meminfo := Path("/proc/meminfo")).exists():
        free = int(re.findall(r"MemAvailable:\s+(\d+)", meminfo.read_text())[0]) * 1024
    for limit in ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"):
        if Path(limit).exists() and (text := Path(limit).read_text().strip()).isdigit():
            free, total = min(free, int(text)), min(total, int(text))
    found = f"{free / GB:.1f} of {total / GB:.1f} GB free"
    if free < 2 * GB:
        return Check(name="memory", status="warn", found=found, advice="the quickstart takes up to 2 GB")
    return Check(name="memory", status="ok", found=found)


def check_disk() -> Check:
    """Free disk space in the working directory."""
    free = shutil.disk_usage(Path.cwd()).free
    found = f"{free / GB:.1f} GB free in {Path.cwd()}"
    if free < 0.2 * GB:
        return Check(name="disk", status="fail", found=found, advice="make room, or work on another disk")
    if free < 2 * GB:
        return Check(name="disk", status="warn", found=found, advice="checkpoints of larger models will not fit")
    return Check(name="disk", status="ok", found=found)


def check_write_access() -> Check:
    """Whether the folder of runs can be written to."""
    folder = Path("runs") if Path("runs").is_dir() else Path()
    try:
        with tempfile.NamedTemporaryFile(dir=folder):
            return Check(name="write access", status="ok", found=str(folder.resolve()))
    except OSError as error:
        advice = "work in a folder of your own, or name one: posttrain run ... --runs FOLDER"
        return Check(name="write access", status="fail", found=f"{folder.resolve()}: {error.strerror}", advice=advice)


def check_gpu() -> Check:
    """GPUs that torch can use, or a GPU that it cannot use."""
    import torch

    from posttrain.kernels import paged

    if torch.cuda.is_available():
        devices = [torch.cuda.get_device_properties(index) for index in range(torch.cuda.device_count())]
        found = ", ".join(f"{device.name} with {device.total_memory / GB:.0f} GB" for device in devices)
        found += f"; decoding is {paged.status(torch.device('cuda'))}"
        return Check(name="gpu", status="ok", found=found)
    if not Path("/proc/driver/nvidia/version").exists():
        return Check(name="gpu", status="ok", found="none; everything runs on the CPU")
    if torch.version.cuda is None:
        advice = "install torch's CUDA build (README, Installation)"
        return Check(name="gpu", status="warn", found="the machine has one, but torch is a CPU build", advice=advice)
    advice = f"the driver must support CUDA {torch.version.cuda}: see nvidia-smi"
    return Check(name="gpu", status="warn", found="the machine has one, but torch cannot use it", advice=advice)


def check_sandbox() -> Check:
    """The tier of the sandbox for model-written programs, measured by attacking it."""
    from posttrain.sandbox import find_tier

    found = find_tier()
    if found.tier == "cgroup":
        return Check(name="sandbox", status="ok", found=found.sentence)
    stronger = "; ".join(f"no {tier}: {reason}" for tier, reason in found.why_not.items())
    advice = f"rewards that run programs need weakest={found.tier} here ({stronger})"
    return Check(name="sandbox", status="warn", found=found.sentence, advice=advice)


def extras() -> dict[str, list[str]]:
    """The packages of each optional extra except that of developers; none where this package is not installed."""
    found: dict[str, list[str]] = {}
    try:
        requirements = importlib.metadata.requires("posttrain") or ()
    except importlib.metadata.PackageNotFoundError:  # run from a folder of its sources
        return found
    for requirement in requirements:
        if (extra := re.search(r"extra == ['\"]([\w-]+)['\"]", requirement)) and extra[1] != "dev":
            found.setdefault(extra[1], []).append(re.split(r"[^\w.-]", requirement, maxsplit=1)[0])
    return found


def check_extra(extra: str, packages: list[str]) -> Check:
    """Whether an optional extra is installed; a missing one is ok."""
    versions = []
    for package in packages:
        try:
            versions.append(f"{package} {importlib.metadata.version(package)}")
        except importlib.metadata.PackageNotFoundError:
            advice = f"to install it: pip install 'posttrain[{extra}]'"
            return Check(name=extra, status="ok", found="not installed (optional)", advice=advice)
    return Check(name=extra, status="ok", found=", ".join(versions))


def check_model() -> Check:
    """The bundled model loads and writes a token."""
    import asyncio

    import torch

    from posttrain.engines import Sampling
    from posttrain.engines.native import Native
    from posttrain.models import Model
    from posttrain.policies.loading import load_policy

    started = time.monotonic()
    policy = load_policy("policy", Model(source="pebble"), {}, torch.device("cpu"))
    sampler = Native().serve(policy, 0).bind("doctor")
    [completion] = asyncio.run(sampler.sample(sampler.encode("1+1="), 1, Sampling(max_tokens=1)))
    millions, seconds = sum(p.numel() for p in policy.parameters()) / 1e6, time.monotonic() - started
    found = f"pebble, {millions:.1f} million parameters, wrote {completion.text!r} after {seconds:.1f} s"
    return Check(name="model", status="ok", found=found)


def check_speed() -> Check:
    """Rate of matrix products in float32."""
    import torch

    size, best = 1024, float("inf")
    matrix = torch.ones(size, size)
    for _ in range(5):
        started = time.perf_counter()
        matrix.matmul(matrix)
        best = min(best, time.perf_counter() - started)
    return Check(name="speed", status="ok", found=f"{2 * size**3 / best / 1e9:.0f} GFLOP/s in float32 on the CPU")
