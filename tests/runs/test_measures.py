from pathlib import Path

import pytest

from posttrain.errors import UserError
from posttrain.runs.measures import by_step, measure, reduce
from posttrain.runs.store import RunStore
from posttrain.runs.summary import write_summary
from tests.runs.made_runs import make_run


@pytest.fixture
def run(tmp_path: Path) -> RunStore:
    folder = make_run(tmp_path, sft=5, rl=8, tasks=40)
    with RunStore.open(folder) as store:
        write_summary(store)
    return RunStore.open(folder, reading=True)


def test_numbers_of_the_summary_by_name(run: RunStore) -> None:
    assert measure(run, "accuracy_after") == run.summary()["accuracy_after"]
    assert measure(run, "steps") == 13


def test_metrics_over_the_steps_that_have_them(run: RunStore) -> None:
    rewards = [e["reward"] for e in run.metrics() if e["stage"] == "rl"]
    assert measure(run, "reward") == pytest.approx(sum(rewards) / 8)
    assert measure(run, "rl/reward:last2") == pytest.approx(sum(rewards[-2:]) / 2)
    assert measure(run, "reward:max") == max(rewards)
    losses = [e["loss"] for e in run.metrics() if e["stage"] == "sft"]
    assert measure(run, "sft/loss:first") == losses[0]


def test_the_first_of_several_names_that_the_run_has(run: RunStore) -> None:
    assert measure(run, "reward/pioneer|reward:last2") == measure(run, "reward:last2")
    assert measure(run, "rl/reward|loss") == measure(run, "rl/reward")


def test_a_metric_by_step(run: RunStore) -> None:
    rewards = {e["step"]: e["reward"] for e in run.metrics() if e["stage"] == "rl"}
    assert by_step(run, "reward:last5") == by_step(run, "rl/reward") == by_step(run, "none|reward") == rewards
    assert list(rewards) == list(range(6, 14)), "steps of the whole run"
    assert by_step(run, "accuracy_after") == {}


def test_numbers_of_evaluations_leave_out_the_one_before_training(run: RunStore) -> None:
    after = [e["accuracy"] for e in run.evaluations() if e["step"] > 0]
    assert measure(run, "evaluation.accuracy") == after[-1]
    assert measure(run, "evaluation.accuracy:mean") == pytest.approx(sum(after) / len(after))


def test_the_first_step_that_reached_a_bound() -> None:
    assert reduce([0.1, 0.5, 0.4, 0.6], "reached0.5") == 2
    assert reduce([0.1, 0.2], "reached0.5") == 3
    assert reduce([-2.0, -1.0], "reached-1.5") == 2


def test_tokens_to_a_bound_are_interpolated_between_evaluations(tmp_path: Path) -> None:
    with RunStore.create(tmp_path, "run", {}) as store:
        store.write_evaluation(0, "before", None, {"name": "before", "step": 0, "accuracy": 0.2})
        for step, (tokens, accuracy) in enumerate([(100, None), (300, 0.4), (50, 0.3), (150, 0.8)], 1):
            store.log_metrics(step, "rl", step, {"sampled_tokens": float(tokens)})
            if accuracy is not None:
                store.write_evaluation(step, "rl", None, {"name": "rl", "step": step, "accuracy": accuracy})
        # 0.2 at 0, 0.4 at 400, 0.3 at 450, 0.8 at 600
        for bound, tokens in [(0.1, 0.0), (0.2, 0.0), (0.3, 200.0), (0.4, 400.0), (0.55, 525.0), (0.9, 600.0)]:
            assert measure(store, f"tokens_to:accuracy={bound}") == pytest.approx(tokens)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("rewardd", "did you mean .*reward"),
        ("evaluation.acuracy", "did you mean .*accuracy"),
        ("reward:median", "is not a measure"),
        ("rl/nothing", "no number 'rl/nothing'"),
        ("tokens_to:acuracy=0.5", "no number 'acuracy' in its evaluations; did you mean 'accuracy'"),
        ("tokens_to:accuracy", "write tokens_to:accuracy=0.6"),
        ("tokens_to:accuracy=1.2.3", "write tokens_to:accuracy=0.6"),
    ],
)
def test_an_unknown_name_is_answered_with_what_is_near(run: RunStore, name: str, said: str) -> None:
    with pytest.raises(UserError, match=said):
        measure(run, name)


def test_a_mean_of_no_step_is_refused() -> None:
    with pytest.raises(UserError, match="mean over no step"):
        reduce([1.0], "last0")


def test_what_older_runs_called_entropy_has_another_name(tmp_path: Path) -> None:
    """They recorded minus the log-probability of what was drawn; for each role that samples."""
    with RunStore.create(tmp_path, "old", {}) as store:
        store.log_metrics(1, "rl", 1, {"entropy": 0.5, "solver/entropy": 0.25})
        assert measure(store, "sampled_nll") == 0.5 and measure(store, "solver/sampled_nll") == 0.25
        with pytest.raises(UserError, match="what older runs called 'entropy' is 'sampled_nll'"):
            measure(store, "entropy")
    with RunStore.create(tmp_path, "new", {}) as store:
        store.log_metrics(1, "rl", 1, {"entropy": 0.5, "sampled_nll": 0.75})
        assert (measure(store, "entropy"), measure(store, "sampled_nll")) == (0.5, 0.75)
