"""posttrain compare, with runs that are small and real."""

import json
from pathlib import Path
from typing import Any

import pytest

from posttrain.cli import main
from posttrain.recipes.differences import differences
from posttrain.runs.comparison import contenders_of

SMALL = [
    "models.policy.source=new",
    "models.policy.shape={layers: 1, width: 16, heads: 2, kv_heads: 1, mlp_width: 16, context: 64}",
    "tasks={kind: arithmetic, size: 40, terms: [2, 2]}",
    "evaluation.holdout=8",
    "rl.steps=2",
    "rl.prompts=2",
    "rollout.n=2",
    "rollout.sampling.max_tokens=4",
    "filters={}",
]


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def compared(capfd: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> tuple[Any, str]:
    assert main(["compare", *arguments, "--json"]) == code
    out, err = capfd.readouterr()
    return json.loads(out), err


@pytest.mark.slow
def test_a_comparison_runs_what_is_missing_and_says_how_sure_it_is(capfd: pytest.CaptureFixture[str]) -> None:
    measures = ["--measure", "reward:mean", "--measure", "completion_tokens:last"]
    specs = ["grpo", "grpo rollout.n=3", *SMALL]
    first, said = compared(capfd, *specs, "--seeds", "1", *measures, "--out", "c")
    assert "2 runs" in said
    base, other = first["contenders"]
    assert (base["contender"], other["contender"]) == ("grpo", "grpo rollout.n=3")
    assert base["sampled_tokens"]["mean"] < other["sampled_tokens"]["mean"]
    assert other["reward:mean"]["difference"]["interval"] is None  # one seed
    begun = sorted(str(p) for p in Path("c").glob("*/seed_*/*/summary.json"))

    # Asked for again with more seeds, the old runs are kept.
    ages = {p: Path(p).stat().st_mtime_ns for p in begun}
    second, said = compared(capfd, *specs, "--seeds", "2", *measures, "--out", "c")
    assert "2 of 4 runs are there already" in said
    assert {p: Path(p).stat().st_mtime_ns for p in begun} == ages
    assert second["contenders"][0]["seeds"] == [0, 1]
    assert second["contenders"][0]["reward:mean"]["values"][0] == base["reward:mean"]["values"][0]
    low, high = second["contenders"][1]["completion_tokens:last"]["difference"]["interval"]
    assert low <= second["contenders"][1]["completion_tokens:last"]["difference"]["value"] <= high
    assert json.loads(Path("c/comparison.json").read_text()) == second
    drawn = second["contenders"][0]["curves"]
    assert list(drawn) == ["reward", "completion_tokens"] and drawn["reward"]["steps"] == [1, 2]
    assert sum(drawn["reward"]["mean"]) / 2 == pytest.approx(second["contenders"][0]["reward:mean"]["mean"], abs=1e-5)
    assert first["contenders"][0]["curves"]["reward"]["interval"] == [None, None]  # one seed

    # Another recipe under the same name is refused rather than mixed in.
    assert main(["compare", *specs, "seed=3", "--seeds", "1", "--out", "c"]) == 2
    assert "--seeds" in capfd.readouterr().err
    assert main(["compare", *specs, "lr=1e-3", "--seeds", "1", "--out", "c"]) == 2
    assert "another recipe" in capfd.readouterr().err


@pytest.mark.slow
def test_a_run_that_fails_is_left_out_and_said(capfd: pytest.CaptureFixture[str]) -> None:
    Path("broken.py").write_text("def score(completion, task):\n    raise ValueError('no such file')\n")
    specs = ["grpo", "grpo reward=broken.py:score", *SMALL]
    result, said = compared(capfd, *specs, "--seeds", "1", "--measure", "reward:mean", "--out", "c", code=1)
    assert [row["seeds"] for row in result["contenders"]] == [[0], []]
    assert any("exit code 3" in why for why in result["failures"].values())
    assert "1 of 2 runs failed and are left out" in said


def test_changes_of_one_recipe_are_quoted_as_in_a_shell() -> None:
    specs = ["grpo", "grpo 'reward={kind: match, wrong: 0.1}' steps=3"]
    base, other = contenders_of(specs, ["steps=7"], Path("c"), 1)
    changed = {d.path: d.after for d in differences(base.recipe, other.recipe)}
    assert changed == {"reward.wrong": 0.1, "steps": 3}
    assert base.recipe.threads == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["grpo"], "two recipes or more"),
        (["grpo", "grpo", "--out", "c"], "are the same"),
        (["grpo", "no_such_recipe"], "no recipe named"),
        (["grpo", "grpo seed=1"], "leave seed"),
    ],
)
def test_mistakes_are_found_before_anything_runs(
    capfd: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    assert main(["compare", *arguments]) == 2
    assert said in capfd.readouterr().err
    assert not Path("c").exists()
