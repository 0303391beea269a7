"""What all tests share."""

import gc
import importlib.util
import os
import random
import sys
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

# Continuous integration tries the same examples every time, so that its verdict is about the change; a run by hand
# looks for new ones.
settings.register_profile("ci", derandomize=True, deadline=None)
settings.register_profile("by hand", deadline=None)
settings.load_profile("ci" if "CI" in os.environ else "by hand")

# Consent to run code is remembered in the user's home; tests keep it to themselves.
os.environ["XDG_STATE_HOME"] = tempfile.mkdtemp(prefix="posttrain-tests-state-")


# What tests write need not outlive a power cut of this machine; what would is modelled (`benchmarks.power`). A test
# that counts syncs puts its own function here.
os.fsync = lambda descriptor: None


COMPILE_S = 900.0
"""Seconds for compiling a kernel before the tests, on a machine that may have much else to do."""


def pytest_configure(config: pytest.Config) -> None:
    """Compile the kernels before the processes of tests start, which would all do so at the same time."""
    if hasattr(config, "workerinput"):
        return
    build = Path(__file__).parents[1] / "src" / "posttrain" / "kernels" / "_build.py"
    spec = importlib.util.spec_from_file_location("posttrain_kernels_build", build)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # without the package, which loads torch
    spec.loader.exec_module(module)
    module.COMPILE_S = COMPILE_S
    compiled = set(module.folder().glob("*.so"))
    found = module.built()
    if found.library is None:
        print(f"kernels are not compiled: {found.why_not}", flush=True)
    elif set(module.folder().glob("*.so")) - compiled:
        print("kernels were compiled for this processor", flush=True)


def pytest_runtest_setup(item: pytest.Item) -> None:
    """What a test draws does not depend on the tests that ran before it."""
    seed(item.nodeid)


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest) -> Iterator[None]:
    """Nor does what a fixture of several tests draws depend on the test that is the first to take it."""
    if fixturedef.scope == "function":
        return (yield)
    seed(f"{request.node.nodeid} {fixturedef.argname} {getattr(request, 'param_index', 0)}")
    try:
        return (yield)
    finally:
        seed(request._pyfuncitem.nodeid)


def seed(name: str) -> None:
    """Seed the generators of the libraries that are loaded."""
    number = zlib.crc32(name.encode("utf-8", "replace"))
    random.seed(number)
    if "numpy" in sys.modules:
        sys.modules["numpy"].random.seed(number)
    if "torch" in sys.modules:
        sys.modules["torch"].default_generator.manual_seed(number)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files with slow tests come first: while the last processes end, only short files are left to share out."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """What is collected stays until the end: it is not visited by collections of garbage, now or while tests run."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Files are shared out in time that does not grow with the square of the number of tests."""
    if config.getoption("dist") != "loadfile":
        return None
    from tests.scheduling import Files

    return Files(config, log)


def pytest_sessionfinish() -> None:
    """Let everything go at the end, or libraries report it as leaked."""
    gc.unfreeze()
