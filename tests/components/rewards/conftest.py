"""Functions of one's own as rewards, in a worker and in this process."""

import sys
from pathlib import Path
from typing import Any

import pytest

from posttrain.components.rewards.function import Function
from tests.components.rewards.judging import Write


@pytest.fixture(params=[60.0, None], ids=["worker", "here"])
def time_limit(request: pytest.FixtureRequest) -> float | None:
    """With a limit the function runs in a worker, without one in this process; both must do the same."""
    limit: float | None = request.param
    return limit


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, time_limit: float | None) -> Write:
    """Write mine.py in the working directory and make it a reward."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])

    def write(source: str, name: str = "score", **settings: Any) -> Function:
        (tmp_path / "mine.py").write_text(source)
        return Function(path=f"./mine.py:{name}", **{"time_limit": time_limit, **settings})

    return write
