"""What all tests share."""

import gc
import os
import tempfile
from collections.abc import Iterator

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


def pytest_sessionfinish() -> None:
    """Let everything go at the end, or libraries report it as leaked."""
    gc.unfreeze()
