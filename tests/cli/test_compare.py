"""posttrain compare, with runs that are small and real, in processes that are forked."""

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from posttrain.cli import main
from posttrain.recipes.differences import differences
from posttrain.runs.comparison import contenders_of
from posttrain.statistics.power import detectable, power
from tests.warm import POSSIBLE, Warm

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


@pytest.fixture(scope="module")
def warm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The path of an interpreter in whose processes the package is loaded."""
    made = Warm(tmp_path_factory.mktemp("warm"), os.environ) if POSSIBLE else None
    yield str(made.program) if made else sys.executable
    if made:
        made.close()


@pytest.fixture
def forked(warm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", warm)


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def compared(capfd: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> tuple[Any, str]:
    assert main(["compare", *arguments, "--json"]) == code
    out, err = capfd.readouterr()
    return json.loads(out), err


@pytest.mark.slow
@pytest.mark.usefixtures("forked")
def test_a_comparison_runs_what_is_missing_and_states_how_sure_it_is(capfd: pytest.CaptureFixture[str]) -> None:
    measures = ["--measure", "reward:mean", "--measure", "completion_tokens:last"]
    specs = ["grpo", "grpo rollout.n=3", *SMALL]
    first, said = compared(capfd, *specs, "--seeds", "1", *measures, "--out", "c")
    assert "2 runs" in said
    base, other = first["contenders"]
    assert (base["contender"], other["contender"]) == ("grpo", "grpo rollout.n=3")
    assert base["sampled_tokens"]["mean"] < other["sampled_tokens"]["mean"]
    assert other["reward:mean"]["difference"]["interval"] is None  # one seed
    assert "one step of each stage, to check reward:mean, completion_tokens:last" in said
    begun = sorted(str(p) for p in Path("c").glob("*/seed_*/*/summary.json"))

    # Asked for again with more seeds, the old runs are kept.
    ages = {p: Path(p).stat().st_mtime_ns for p in begun}
    second, said = compared(capfd, *specs, "--seeds", "2", *measures, "--out", "c")
    assert "2 of 4 runs are there already" in said
    assert {p: Path(p).stat().st_mtime_ns for p in begun} == ages
    assert second["contenders"][0]["seeds"] == [0, 1]
    assert second["contenders"][0]["reward:mean"]["values"][0] == base["reward:mean"]["values"][0]
    assert "one step of each stage" not in said  # there are runs
    assert "With 2 seeds a sign-flip test, which assumes no distribution, has p = 0.5 at best" in said
    difference = second["contenders"][1]["completion_tokens:last"]["difference"]
    assert difference["seeds"] == 2 and difference["verdict"] in ("equal", "constant", "unclear", "higher", "lower")
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
@pytest.mark.usefixtures("forked")
def test_a_run_that_fails_is_left_out_and_reported(capfd: pytest.CaptureFixture[str]) -> None:
    Path("broken.py").write_text("def score(completion, task):\n    raise ValueError('no such file')\n")
    specs = ["grpo", "grpo reward=broken.py:score", *SMALL]
    result, said = compared(capfd, *specs, "--seeds", "1", "--measure", "reward:mean", "--out", "c", code=1)
    assert [row["seeds"] for row in result["contenders"]] == [[0], []]
    assert any("exit code 3" in why for why in result["failures"].values())
    assert "1 of 2 runs failed and are left out" in said


@pytest.mark.slow
@pytest.mark.usefixtures("forked")
def test_a_wrong_measure_is_found_before_the_runs(capfd: pytest.CaptureFixture[str]) -> None:
    specs = ["grpo", "grpo rollout.n=3", *SMALL, "--seeds", "1", "--out", "c"]
    assert main(["compare", *specs, "--measure", "accuracy_afer"]) == 2
    said = capfd.readouterr().err
    assert "--measure accuracy_afer: 'grpo': no number 'accuracy_afer'" in said and "accuracy_after" in said
    assert "no run was started" in said
    assert not Path("c").exists()


@pytest.mark.slow
@pytest.mark.usefixtures("forked")
def test_runs_of_a_budget_end_with_the_step_that_reaches_it(capfd: pytest.CaptureFixture[str]) -> None:
    specs = ["grpo", "grpo rollout.n=4", *SMALL, "rl.steps=50", "--seeds", "1", "--budget", "60"]
    result, _ = compared(capfd, *specs, "--measure", "reward:mean", "--out", "c")
    # Steps sample at most 2 * 4 * 4 = 32 tokens, so the budget is overshot by less than that.
    spent = [row["sampled_tokens"]["values"][0] for row in result["contenders"]]
    assert all(60 <= tokens < 60 + 32 for tokens in spent)
    assert result["notes"] == []
    short, _ = compared(capfd, *specs[:-1], "100000", "rl.steps=1", "--measure", "reward:mean", "--out", "d")
    assert any("1 of 1 runs ended after" in note and "more steps=..." in note for note in short["notes"])


def test_a_plan_states_what_seeds_can_find_and_runs_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    plan, _ = compared(capfd, "grpo", "dr_grpo", "--plan", "--std", "0.025", "--find", "0.04")
    found = plan["accuracy_after"]
    assert found["detectable"]["5"] == pytest.approx(detectable(0.025, 5))
    assert power(0.04, 0.025, found["find"]["seeds"]) >= 0.8 > power(0.04, 0.025, found["find"]["seeds"] - 1)
    assert main(["compare", "grpo", "dr_grpo", "--plan", "--std", "0.025"]) == 0
    assert "with  5 seeds a difference of 4.2 points is found 4 times in 5" in capfd.readouterr().out
    assert not Path("comparisons").exists()


def test_a_plan_from_an_earlier_comparison(capfd: pytest.CaptureFixture[str]) -> None:
    rows = [
        {"contender": "a", "seeds": [0, 1, 2], "accuracy_after": {"values": [0.1, 0.2, 0.3]}},
        {"contender": "b", "seeds": [1, 2, 3], "accuracy_after": {"values": [0.3, 0.5, 0.9]}},
    ]
    Path("comparison.json").write_text(json.dumps({"measures": ["accuracy_after"], "contenders": rows}))
    plan, _ = compared(capfd, "grpo", "dr_grpo", "--plan", "--pilot", ".")
    # Seeds 1 and 2 are shared: differences 0.1 and 0.2, of std 0.0707.
    assert plan["accuracy_after"]["std"] == pytest.approx(0.1 / 2**0.5)
    assert main(["compare", "grpo", "dr_grpo", "--plan", "--pilot", ".", "--measure", "accuracy_afer"]) == 2
    assert "accuracy_after" in capfd.readouterr().err


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
        (["grpo", "dr_grpo", "--measure", "reward:median"], "is not a measure"),
        (["grpo", "dr_grpo", "--std", "0.1"], "add --plan"),
        (["grpo", "dr_grpo", "--plan"], "--std 0.025"),
        (["grpo", "dr_grpo", "--plan", "--std", "-1"], "above 0"),
    ],
)
def test_mistakes_are_found_before_anything_runs(
    capfd: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    assert main(["compare", *arguments]) == 2
    assert said in capfd.readouterr().err
    assert not Path("c").exists()
