"""Shares proposed from the folders of runs."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from posttrain.components.diagnostics import Finding, Subject
from posttrain.components.diagnostics.mixture import MixtureOfRuns
from posttrain.errors import UserError
from posttrain.statistics.mixtures import seeds


def run(folder: Path, shares: Mapping[str, float] | None, score: float | None) -> str:
    """A folder with the two files that are read."""
    folder.mkdir()
    curriculum = {"kind": "uniform"} if shares is None else {"kind": "by_share", "shares": dict(shares)}
    (folder / "recipe.yaml").write_text(json.dumps({"stages": {"sft": {}, "rl": {"curriculum": curriculum}}}))
    (folder / "summary.json").write_text(json.dumps({"accuracy_after": score}))
    return str(folder)


def examined(*names: str, **settings: Any) -> Finding:
    unused: Any = None
    return MixtureOfRuns(**settings).examine(*(Subject(name=name, load=unused, serve=unused) for name in names))


def test_proposals_from_the_runs_to_begin_with(tmp_path: Path) -> None:
    """Scores fall with the share of c; seven runs of three domains are enough for the surface."""
    names = []
    for i, row in enumerate(seeds(3).tolist()):
        shares = dict(zip("abc", row, strict=True))
        names.append(run(tmp_path / f"r{i}", {k: v for k, v in shares.items() if v}, 0.8 - 0.4 * shares["c"]))
    found = examined(*names, top=1)
    assert found.values["domains"] == ["a", "b", "c"] and found.values["runs"] == 7
    proposed = found.values["proposed"]
    assert set(proposed) == {"alpha", "coli", "norm", "quadratic 1"}
    # without a .6, without b .6, without c .8: weights .2, .2, .1
    assert proposed["norm"] == {"a": 0.4, "b": 0.4, "c": 0.2}
    assert all(own["c"] < min(own["a"], own["b"]) for own in proposed.values())
    assert "with 7 runs the quadratic surface is seldom near the best mixture; 12 are advised" in found.lines[-1]


def test_equal_shares_stand_for_a_run_without_them(tmp_path: Path) -> None:
    names = [run(tmp_path / "a", {"a": 2}, 0.5), run(tmp_path / "b", {"b": 1}, 0.7), run(tmp_path / "c", None, 0.6)]
    assert examined(*names).lines[0].endswith("best so far 0.700 with a 0.00, b 1.00")


def test_what_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is not a finished run"):
        examined(str(tmp_path / "none"))
    with pytest.raises(UserError, match="no curriculum by_share"):
        examined(run(tmp_path / "u", None, 0.5))
    with pytest.raises(UserError, match="has no number 'accuracy_after'"):
        examined(run(tmp_path / "n", {"a": 1}, None))
