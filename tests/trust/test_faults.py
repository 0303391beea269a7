"""A small part of `python -m benchmarks.faults`: what is broken ends like the undisturbed run, or in a clear stop."""

import json
from pathlib import Path

import pytest

from tests.trust.commands import run_benchmark


@pytest.mark.slow
def test_no_fault_is_met_badly(tmp_path: Path) -> None:
    found = tmp_path / "faults.json"
    run_benchmark("-m", "benchmarks.faults", "--kills", "10", "--quick", "--output", str(found))
    [table] = json.loads(found.read_text())["tables"]
    rows = {row[0]: dict(zip(table["columns"], row, strict=True)) for row in table["rows"]}
    assert sum(row["tried"] for name, row in rows.items() if name.startswith("kill -9")) == 10
    for name, row in rows.items():
        assert row["went wrong"] == 0, name
        if row["tried"]:
            assert row["stopped clearly first"] or row["ended like the undisturbed run"], name
        else:
            assert name.startswith("kill -9") or row["remark"].startswith("not tried: "), name
