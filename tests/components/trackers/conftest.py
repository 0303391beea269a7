"""Runs that are made up, and the trackers' libraries: `make test` puts those into .trackers, apart from .venv."""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from posttrain.runs.store import RunStore
from tests.runs.made_runs import RECIPE, evaluate, record_steps

LIBRARIES = Path(__file__).resolve().parents[3] / ".trackers"
STEPS = 6


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave warnings of these libraries out: classes of theirs cannot be sent to a process that lacks the libraries."""
    for item in items:
        if item.path.parent == Path(__file__).parent:
            item.add_marker(pytest.mark.filterwarnings("ignore"))


@pytest.fixture(scope="module")
def libraries() -> Iterator[None]:
    """Libraries on the path, after those of the environment, and only as long as a test needs them."""
    before = list(sys.path)
    sys.path.append(str(LIBRARIES))
    importlib.invalidate_caches()
    yield
    sys.path[:] = before


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of one stage: an evaluation before it, six steps, an evaluation after it."""
    with RunStore.create(tmp_path_factory.mktemp("runs"), "quickstart", RECIPE, {"device": "cpu"}) as store:
        evaluate(store, 0, "before", 0.25, tasks=8)
        record_steps(store, [(i, "rl", i, i / STEPS) for i in range(1, STEPS + 1)])
        evaluate(store, STEPS, "rl", 0.75, tasks=8)
        return store.folder
