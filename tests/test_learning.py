"""The promise, kept on this machine: the quickstart makes a model that is better on tasks it never saw."""

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch

from posttrain.evaluation.greedy import evaluate
from posttrain.kernels.memory import forget_peak, give_back, resident_memory
from posttrain.policies.loading import load_policy
from posttrain.recipes.overrides import override
from posttrain.recipes.tree import Recipe
from posttrain.runs.launch import start
from posttrain.runs.live import LiveView
from posttrain.runs.problems import Problems
from posttrain.runs.store import RunStore
from posttrain.settings.quickstart import quickstart

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

Row = dict[str, Any]


@pytest.fixture(scope="module")
def recipe() -> Recipe:
    return override(quickstart(), ["threads=2"])


@pytest.fixture(scope="module")
def held() -> int:
    """Bytes that this process holds before the run, after whatever it tested; its peak begins anew."""
    give_back()
    forget_peak()
    return resident_memory()


@pytest.fixture(scope="module")
def run(held: int, recipe: Recipe, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunStore]:
    threads = torch.get_num_threads()
    folder, _ = start(recipe, tmp_path_factory.mktemp("learning") / "runs", LiveView(lines=True))
    torch.set_num_threads(threads)
    with RunStore.open(folder, reading=True) as opened:
        yield opened


@pytest.fixture(scope="module")
def summary(run: RunStore) -> Row:
    found: Row = json.loads((run.folder / "summary.json").read_text())
    return found


def test_it_gets_better_beyond_doubt(summary: Row) -> None:
    assert summary["tasks_evaluated"] >= 200
    assert summary["accuracy_after"] - summary["accuracy_before"] >= 0.30
    assert summary["accuracy_before_interval"][1] < summary["accuracy_after_interval"][0]


def test_reinforcement_alone_makes_it_better(recipe: Recipe, summary: Row) -> None:
    *_, stage = summary["stages"]
    assert recipe.stages[stage["name"]].kind == "rl"
    assert stage["accuracy_after"] - stage["accuracy_before"] >= 0.15
    assert stage["accuracy_before_interval"][1] < stage["accuracy_after_interval"][0]
    assert stage["accuracy_after"] == summary["accuracy_after"]


def test_no_held_out_task_was_trained_on(run: RunStore, recipe: Recipe) -> None:
    held_out = {row["prompt"].strip() for row in run.evaluation_rows(0, columns=["prompt"])}
    assert len(held_out) >= 200
    trained = {row["prompt"].strip() for step in run.rollout_steps() for row in run.rollouts(step, ["prompt"])}
    assert len(trained) >= 100
    assert held_out.isdisjoint(trained)
    for evaluation in run.evaluations():
        rows = run.evaluation_rows(evaluation["step"], evaluation["name"], ["prompt"], "sample = 0")
        assert {row["prompt"].strip() for row in rows} == held_out, "every evaluation asks the same"
        assert len(rows) == evaluation["tasks"]


def test_the_accuracies_are_those_of_the_recorded_answers(run: RunStore, recipe: Recipe, summary: Row) -> None:
    evaluations = run.evaluations()
    for evaluation, when in ((evaluations[0], "before"), (evaluations[-1], "after")):
        rows = run.evaluation_rows(evaluation["step"], evaluation["name"], where="sample = 0")
        scored = [row for row in rows if row["score_status"] != "error"]
        right = sum(row["reward"] >= recipe.evaluation.correct_at for row in scored)
        assert summary[f"accuracy_{when}"] == pytest.approx(right / len(scored), abs=1e-12)


def test_the_verifier_is_not_the_training_reward(recipe: Recipe, summary: Row) -> None:
    assert recipe.evaluation.verifier is not None
    assert summary["verifier_is_training_reward"] is False


def test_the_summary_has_what_programs_are_promised(held: int, recipe: Recipe, summary: Row) -> None:
    def is_share(value: Any) -> bool:
        return isinstance(value, float) and 0.0 <= value <= 1.0

    def is_interval(value: Any) -> bool:
        return isinstance(value, list) and len(value) == 2 and all(map(is_share, value)) and value[0] < value[1]

    assert [stage["name"] for stage in summary["stages"]] == list(recipe.stages)
    for part in (summary, *summary["stages"]):
        for when in ("before", "after"):
            assert is_share(part[f"accuracy_{when}"])
            assert is_interval(part[f"accuracy_{when}_interval"])
        for count in ("steps", "sampled_tokens", "trained_tokens", "peak_memory_bytes"):
            assert isinstance(part[count], int)
        assert part["steps"] > 0 and part["trained_tokens"] > 0
        assert isinstance(part["seconds"], float) and part["seconds"] > 0
    assert isinstance(summary["tasks_evaluated"], int)
    for total in ("steps", "sampled_tokens", "trained_tokens"):
        assert summary[total] == sum(stage[total] for stage in summary["stages"])
    assert summary["sampled_tokens"] > 0
    assert summary["peak_memory_bytes"] - held < 1e9
    assert summary["summary_line"].startswith("quickstart: ")


def test_what_was_learned_is_in_the_model_that_is_left(run: RunStore, recipe: Recipe, summary: Row) -> None:
    """The saved folder, loaded anew, answers as well as in the last evaluation."""
    model = replace(recipe.models["policy"], source=str(run.folder / "model"), trained=False)
    problems = Problems(recipe)
    server = recipe.engine.serve(load_policy("policy", model, {}, torch.device("cpu")), recipe.seed)
    settings = replace(recipe.evaluation, samples=0)
    found = evaluate(server, problems.held_out, problems.verifier, settings, problems.sampling)
    assert found.summary["accuracy"] == pytest.approx(summary["accuracy_after"], abs=0.02)
