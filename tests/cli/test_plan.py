"""posttrain plan: the counts, and a grid of runs that are small and real."""

import json
from pathlib import Path
from typing import Any

import pytest

from posttrain.cli import main
from posttrain.errors import UserError
from posttrain.policies.folder import new_folder
from posttrain.recipes.budgets import SHARES, read_costs, read_numbers, splits
from posttrain.recipes.files import find_recipe
from posttrain.runs import forecasting
from posttrain.runs.grid import best, check_amounts, with_enough
from tests.runs.test_forecasting import FOUND


def planned(capfd: pytest.CaptureFixture[str], *words: str, code: int = 0) -> Any:
    assert main(["plan", *words, "--json"]) == code
    return json.loads(capfd.readouterr().out)


def test_counts(capfd: pytest.CaptureFixture[str]) -> None:
    rows = planned(capfd, "budget=2000", "costs=1:3", "shares=0,0.25,1")
    assert [(row["demonstrations"], row["pairs"], row["spent"]) for row in rows] == [
        (0, 666, 1998),
        (500, 500, 2000),
        (2000, 0, 2000),
    ]
    assert main(["plan", "budget=100"]) == 0
    assert len(capfd.readouterr().out.splitlines()) == 8


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["costs=1:3"], "there is no budget"),
        (["budget=10", "tasks=mine.jsonl"], "only a grid uses a recipe, got tasks=mine.jsonl; add --grid"),
        (["dpo", "sft", "budget=10", "--grid"], "a plan is for one recipe, got 2: dpo, sft"),
        (["dpo", "budget=10", "--grid"], "has 0 stages of type SFT"),
        (
            ["budget=1900", "--grid", "tasks.tasks.size=2000"],
            "0 demonstrations and 1900 pairs of other examples are needed; the data have 1800 demonstrations and 1800 "
            "pairs besides the held-out tasks. Give a smaller budget, or more data: tasks.tasks.size=2100",
        ),
    ],
)
def test_mistakes(capfd: pytest.CaptureFixture[str], words: list[str], message: str) -> None:
    assert message in planned(capfd, *words, code=2)["error"]


def test_the_size_that_is_asked_for_suffices() -> None:
    """2,000 demonstrations of share 1 and 200 held-out tasks, 2,200 in all; one fewer is one too few."""
    found = list(splits(read_numbers("2000"), read_costs("1:3"), read_numbers(",".join(SHARES))))
    with pytest.raises(UserError, match=r"tasks\.tasks\.size=2200$"):
        check_amounts(find_recipe("sft_dpo", ["tasks.tasks.size=2199"]), found)
    check_amounts(find_recipe("sft_dpo", ["tasks.tasks.size=2200"]), found)


def test_generated_tasks_become_as_many_as_the_largest_split_needs() -> None:
    found = list(splits(read_numbers("2000"), read_costs("1:3"), read_numbers(",".join(SHARES))))
    said: list[str] = []
    changed = with_enough(find_recipe("sft_dpo"), found, said.append)
    assert said == ["tasks.tasks.size=2200: as many tasks as the largest split needs"]
    check_amounts(changed, found)
    assert with_enough(changed, found, said.append) is changed
    assert len(said) == 1


def test_the_best_share_is_that_of_the_highest_mean() -> None:
    cells = [
        {"budget": 10.0, "share": share, "accuracy": accuracy and {"mean": accuracy}}
        for share, accuracy in ((0.0, 0.2), (0.5, 0.4), (1.0, 0.4), (0.1, None))
    ]
    assert best(cells) == {"10": 0.5}


@pytest.mark.slow
def test_a_grid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> None:
    """Every split begins from the initial model, one without demonstrations is share 0, and nothing is run twice."""
    monkeypatch.chdir(tmp_path)
    model = new_folder(Path("tiny"), layers=1, width=32, heads=2, kv_heads=1, context=128)
    words = ["budget=20", "shares=0,0.01,0.5,1", "--grid", "--out", "g", f"model={model}", "tasks.tasks.size=40"]
    small = ["evaluation.holdout=5", "evaluation.sampling.max_tokens=4", "threads=1"]
    found = planned(capfd, *words, *small)
    assert [(row["demonstrations"], row["pairs"]) for row in found["cells"]] == [(0, 20), (0, 20), (10, 10), (20, 0)]
    assert found["cells"][0]["accuracy"] == found["cells"][1]["accuracy"] != None  # noqa: E711
    assert {row["form"]["mean"] for row in found["cells"]} == {0.0}
    runs = sorted(path.parent for path in Path("g").glob("*/seed_0/*/summary.json"))
    assert len(runs) == 3
    stages = [sorted(find_recipe(str(run)).stages) for run in runs]
    assert stages == [["dpo"], ["dpo", "sft"], ["sft"]]
    assert all(find_recipe(str(run)).models["policy"].source == str(model) for run in runs)
    assert planned(capfd, *words, *small) == found
    assert len(list(Path("g").glob("*/seed_0/*"))) == 2 * len(runs), "a run and its plan each"


def test_a_plan_of_samplers_states_phases_memory_and_what_is_faster(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forecasting, "profile", lambda recipe: FOUND)
    words = ["grpo", "cluster=ray", "cluster.samplers=3", "learner.micro_batch_tokens=64"]
    found = planned(capfd, *words)
    assert found["asked"]["bottleneck"] == "learn" and found["asked"]["processes"] == 4
    assert all(own["seconds"] < found["asked"]["seconds"] for own in found["better"]) and len(found["better"]) == 3
    assert main(["plan", *words]) == 0
    assert "faster 3" in capfd.readouterr().out
    assert main(["plan", *words, "cluster.sharding=fsdp"]) == 2
    said = capfd.readouterr().err
    assert "whole models, got cluster=ray with cluster.sharding=fsdp" in said and "measuring" not in said
    assert main(["plan", "grpo", "cluster=ray"]) == 2
    said = capfd.readouterr().err
    assert "got rl.prompts=16 and rl.learner.micro_batch_tokens=None" in said and "measuring" not in said
