import json
from pathlib import Path
from typing import Any

import pytest

from posttrain.runs.amounts import duration, percent
from posttrain.runs.store import RunStore, rollout_rows
from posttrain.runs.summary import describe_gain, seconds_by_phase, summarize, write_summary
from posttrain.statistics.paired import paired_difference
from posttrain.types import Score
from tests.runs.made_runs import RECIPE, make_run, right, trajectory, wrong


@pytest.fixture
def run(tmp_path: Path):
    with RunStore.create(tmp_path, "run", RECIPE) as opened:
        yield opened


def judge(run: RunStore, step: int, name: str, outcomes: str, **changes: Any) -> None:
    """Record an evaluation whose greedy answers are r(ight), w(rong) or e(rrors); each task has a sampled one too."""
    failed = Score(value=float("nan"), status="error", explanation="timed out")
    scores = {"r": right("5"), "w": wrong("4", "5"), "e": failed}
    answers = [trajectory(key=f"task-{i}", score=scores[o]) for i, o in enumerate(outcomes)]
    sampled = [trajectory(key=f"task-{i}", sample=1, score=right("5")) for i in range(len(outcomes))]
    scored = len(outcomes) - outcomes.count("e")
    summary = {
        "accuracy": outcomes.count("r") / scored if scored else None,
        "accuracy_interval": [0.0, 1.0] if scored else None,
        "tasks": len(outcomes),
        "correct": outcomes.count("r"),
        "errors": outcomes.count("e"),
        "truncated": 0.0,
        "verifier": "numeric",
        **changes,
    }
    run.write_evaluation(step, name, rollout_rows([*answers, *sampled]), summary)


def test_a_whole_run(tmp_path: Path) -> None:
    folder = make_run(tmp_path, sft=5, rl=8, tasks=40)
    with RunStore.open(folder) as store:
        summary = write_summary(store)
        evaluations = store.evaluations()
    assert json.loads((folder / "summary.json").read_text()) == summary
    assert summary["steps"] == 13
    assert summary["sampled_tokens"] == 8 * 2048
    assert summary["trained_tokens"] == 5 * 4096 + 8 * 1800
    assert summary["seconds"] == pytest.approx(5 * 0.5 + 8 * 1.5)
    assert summary["peak_memory_bytes"] == 600_000_013
    assert summary["tasks_evaluated"] == 40
    assert summary["accuracy_before"] == evaluations[0]["accuracy"]
    assert summary["accuracy_after"] == evaluations[-1]["accuracy"]
    assert summary["accuracy_after_interval"] == evaluations[-1]["accuracy_interval"]
    assert [(s["name"], s["steps"], s["accuracy_before"], s["accuracy_after"]) for s in summary["stages"]] == [
        ("sft", 5, evaluations[0]["accuracy"], evaluations[1]["accuracy"]),
        ("rl", 8, evaluations[1]["accuracy"], evaluations[-1]["accuracy"]),
    ]
    assert [s["sampled_tokens"] for s in summary["stages"]] == [0, 8 * 2048]


def test_the_gain_is_paired_over_tasks_scored_both_times(run: RunStore) -> None:
    judge(run, 0, "before", "wwwwrre")
    run.log_metrics(1, "rl", 1, {"reward": 1.0})
    judge(run, 1, "rl", "rrwerwr")
    gain = summarize(run)["gain"]
    expected = paired_difference([False, False, False, True, True], [True, True, False, True, False])
    assert (gain["tasks"], gain["gained"], gain["lost"]) == (5, 2, 1)
    assert gain["value"] == pytest.approx(0.2)
    assert gain["interval"] == pytest.approx(list(expected.interval))
    assert gain["p_value"] == pytest.approx(1.0)


def test_a_threshold_of_its_own(tmp_path: Path) -> None:
    recipe = {**RECIPE, "evaluation": {"correct_at": 0.5, "holdout": 1, "verifier": {"kind": "numeric"}}}
    half = Score(value=0.6, status="ok")
    with RunStore.create(tmp_path, "run", recipe) as run:
        judge(run, 0, "before", "w")
        run.log_metrics(1, "rl", 1, {})
        summary = {"accuracy": 1.0, "accuracy_interval": [0.2, 1.0], "tasks": 1, "errors": 0, "verifier": "numeric"}
        run.write_evaluation(1, "rl", rollout_rows([trajectory(key="task-0", score=half)]), summary)
        found = summarize(run)
    assert found["gain"]["gained"] == 1
    assert found["verifier_is_training_reward"] is False
    assert found["warnings"] == []


def test_a_run_that_has_only_begun(run: RunStore) -> None:
    summary = summarize(run)
    assert summary["accuracy_before"] is summary["accuracy_after"] is summary["gain"] is None
    assert (summary["steps"], summary["seconds"], summary["peak_memory_bytes"]) == (0, 0, None)
    assert summary["warnings"] == ["no held-out accuracy was measured: it is unknown whether the model got better"]
    judge(run, 0, "before", "rw")
    summary = summarize(run)
    assert (summary["accuracy_before"], summary["accuracy_after"], summary["gain"]) == (0.5, None, None)
    assert "0 steps in 0.0 s" in summary["summary_line"]


def test_what_a_reader_must_know_is_in_the_warnings_and_the_line(run: RunStore) -> None:
    judge(run, 0, "before", "wwww")
    run.log_metrics(1, "rl", 1, {})
    run.log_event(1, "alarm", "entropy fell to nothing.")
    judge(run, 1, "rl", "rree", truncated=0.25)
    summary = summarize(run)
    text = " ".join(summary["warnings"])
    for expected in (
        "scored by the training reward itself",
        "2 of 4 held-out answers could not be scored",
        "25.0 % of the held-out answers were cut",
        "only 4 tasks of the 200 requested",
        "1 alarm, the last at step 1: entropy fell to nothing",
    ):
        assert expected in text
        assert expected in summary["summary_line"]


def test_evaluations_inside_a_stage_and_a_stage_that_was_not_evaluated(run: RunStore) -> None:
    judge(run, 0, "before", "wwww")
    for step in range(1, 5):
        run.log_metrics(step, "sft" if step <= 2 else "rl", step, {})
    judge(run, 3, "rl step 1", "rwww")
    judge(run, 4, "rl", "rrww")
    sft, rl = summarize(run)["stages"]
    assert (sft["accuracy_before"], sft["accuracy_after"], sft["gain"]) == (0.0, None, None)
    assert (rl["accuracy_before"], rl["accuracy_after"], rl["gain"]["gained"]) == (0.0, 0.5, 2)


def test_an_accuracy_that_could_not_be_had(run: RunStore) -> None:
    judge(run, 0, "before", "ee")
    run.log_metrics(1, "rl", 1, {})
    judge(run, 1, "rl", "rr")
    summary = summarize(run)
    assert (summary["accuracy_before"], summary["accuracy_after"], summary["gain"]) == (None, 1.0, None)
    assert "100.0 % [0.0, 100.0] after; it was not measured before" in summary["summary_line"]


def test_gains_in_words_claim_no_more_than_is_known() -> None:
    gain = {"value": 0.1, "interval": [0.02, 0.18], "tasks": 200, "gained": 30, "lost": 10, "detectable": 0.12}
    gain["p_value"] = 0.0022
    still = {**gain, "value": 0.0, "interval": [-0.02, 0.02], "gained": 0, "lost": 0}
    assert describe_gain(still) == "Not one of 200 tasks changed: +0.0 points [-2.0, +2.0]."
    assert describe_gain(gain) == "Better by +10.0 points [+2.0, +18.0] (McNemar's exact p = 0.0022)."
    worse = {**gain, "interval": [-0.2, -0.1], "value": -0.15}
    assert describe_gain(worse) == "Worse: -15.0 points [-20.0, -10.0] (McNemar's exact p = 0.0022)."
    assert describe_gain({**gain, "interval": [-0.02, 0.1], "p_value": 0.2}).startswith(
        "No difference that 200 tasks can show: +10.0 points [-2.0, +10.0] (McNemar's exact p = 0.2)"
    )
    assert "12.0 points would have been found 4 times in 5" in describe_gain({**gain, "interval": [0.0, 0.1]})


def test_a_gain_is_claimed_where_the_exact_test_rejects_and_nowhere_else(run: RunStore) -> None:
    # 9 of 50 tasks gained and 2 lost: Newcombe's interval alone excludes 0, McNemar's exact test has p = 0.065.
    judge(run, 0, "before", "w" * 9 + "r" * 2 + "r" * 20 + "w" * 19)
    run.log_metrics(1, "rl", 1, {})
    judge(run, 1, "rl", "r" * 9 + "w" * 2 + "r" * 20 + "w" * 19)
    summary = summarize(run)
    assert summary["gain"]["p_value"] == pytest.approx(0.0654, abs=1e-4)
    assert "No difference that 50 tasks can show: +14.0 points [-" in summary["summary_line"]


def test_seconds_by_phase_add_up_to_the_total() -> None:
    timing = [
        {"seconds_sample": 2.0, "seconds_learn": 1.0, "seconds_total": 4.0},
        {"seconds_sample": 1.0, "seconds_total": 1.0},
        {"seconds_evaluate": 3.0},
    ]
    assert seconds_by_phase(timing) == {"sample": 3.0, "learn": 1.0, "evaluate": 3.0, "other": 1.0}


def test_formats() -> None:
    assert [duration(s) for s in (0.04, 59.94, 60, 3599, 7800)] == [
        "0.0 s",
        "59.9 s",
        "1 min 0 s",
        "59 min 59 s",
        "2 h 10 min",
    ]
    assert percent(0.4149, [0.3, 0.5]) == "41.5 % [30.0, 50.0]"
