"""A run never fails, waits or differs because of a tracker, and reports what a tracker did not get."""

import json
import signal
import threading
import time
from collections.abc import Mapping, Sequence
from io import StringIO
from pathlib import Path
from typing import Any, ClassVar

import pytest
from rich.console import Console

from posttrain.component import frozen
from posttrain.components.trackers import Sample, Session, TrackedRun, Tracker
from posttrain.components.trackers.tensorboard import TensorBoard
from posttrain.errors import RunFailed, UserError
from posttrain.policies.folder import new_folder
from posttrain.recipes.files import find_recipe
from posttrain.runs import tracking
from posttrain.runs.export import export
from posttrain.runs.live import LiveView
from posttrain.runs.sender import Sender, read_sent
from posttrain.runs.store import RunStore
from posttrain.runs.tracked import evaluation_entry, recorded_entries, samples_of, step_entry, total
from posttrain.runs.tracking import Tracking
from tests.runs.made_runs import RECIPE, evaluate, record_steps
from tests.runs.processes import command, contents, finish, history, steps_done


class Kept(Session):
    """Keeps what it gets, and does what the test requests before that."""

    def __init__(self, tracker: "Planted", run: TrackedRun) -> None:
        self.tracker, self.reference = tracker, {"run": run.id}
        tracker.log.append(("open", dict(run.reference)))

    def log(self, step: int, values: Mapping[str, float]) -> None:
        self.tracker.act(step)
        self.tracker.log.append((step, dict(values)))

    def table(self, step: int, split: str, samples: Sequence[Sample]) -> None:
        self.tracker.log.append((step, split, len(samples)))

    def close(self, summary: Mapping[str, float] | None) -> None:
        self.tracker.log.append(("close", summary))


@frozen
class Planted(Tracker):
    """A tracker of this test."""

    own_kind: ClassVar[str] = "planted"
    log: ClassVar[list[Any]] = []
    act: ClassVar[Any] = staticmethod(lambda step: None)
    out: str | None = None
    every: int = 2
    samples: int | None = 3

    def open(self, run: TrackedRun) -> Session:
        return Kept(self, run)


@pytest.fixture
def planted(monkeypatch: pytest.MonkeyPatch) -> Planted:
    monkeypatch.setattr(Planted, "log", [])
    return Planted()


@pytest.fixture
def store(tmp_path: Path) -> Any:
    with RunStore.create(tmp_path, "quickstart", RECIPE) as opened:
        yield opened


def track(store: RunStore, tracker: Tracker, steps: int, summary: Mapping[str, Any] | None) -> str:
    """A run of `steps` steps after an evaluation; what was printed."""
    console = Console(record=True, width=500, file=StringIO())
    with Tracking([tracker], store, LiveView(lines=True, console=console)) as told:
        told.go_on(0)
        evaluate(store, 0, "before", 0.5, tasks=4)
        told.evaluation(1, store.evaluations()[0])
        for step in range(1, steps + 1):
            record_steps(store, [(step, "rl", step, 0.5)])
            told.step(store.metrics()[-1], store.timing()[-1])
        if summary is not None:
            told.finish(summary)
    return console.export_text()


def test_a_tracker_gets_steps_evaluations_samples_and_the_summary(store: RunStore, planted: Planted) -> None:
    assert track(store, planted, 3, {"steps": 3, "accuracy_after": None, "recipe": "x", "flag": True}) == ""
    kinds = [entry if entry[0] == "close" else entry[:2] if len(entry) == 3 else entry[0] for entry in planted.log]
    assert kinds == ["open", 0, (0, "eval"), 1, (1, "train"), 2, (2, "train"), 3, ("close", {"steps": 3.0})]
    assert planted.log[1][1]["eval/accuracy_low"] <= planted.log[1][1]["eval/accuracy"]
    assert planted.log[4] == (1, "train", 3)
    numbers = planted.log[3][1]
    assert numbers["time/seconds_total"] == 1.5 and 0 < numbers["train/reward"] < 1
    assert not {"train/step", "train/stage", "train/stage_step"} & numbers.keys()


def test_one_that_raises_is_given_up_and_reported_once(
    store: RunStore, planted: Planted, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(step: int) -> None:
        raise SystemExit(f"no room at step {step}")

    monkeypatch.setattr(Planted, "act", staticmethod(refuse))
    printed = track(store, planted, 5, {"steps": 5})
    said = [message for kind, message in history(store.folder) if kind == "tracker"]
    assert said == [
        "tracker planted failed, and the run goes on: SystemExit: no room at step 0",
        "tracker planted did not get 7 entries of this run (steps, evaluations, its end); "
        f"all of it: posttrain export {store.folder} --to planted",
    ]
    assert [line.removeprefix("warning: ") for line in printed.splitlines()] == said
    assert len(planted.log) == 1, "opened, and nothing sent"


def test_one_failure_costs_one_entry(store: RunStore, planted: Planted, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse_the_second(step: int) -> None:
        if step == 2:
            raise OSError("no route to host")

    monkeypatch.setattr(Planted, "act", staticmethod(refuse_the_second))
    printed = track(store, planted, 4, {"steps": 4})
    assert [entry[0] for entry in planted.log if isinstance(entry[0], int) and len(entry) == 2] == [0, 1, 3, 4]
    assert planted.log[-1] == ("close", {"steps": 4.0})
    assert "did not get 1 entries" in printed and "OSError: no route to host" in printed


def test_one_that_hangs_is_left_behind(store: RunStore, planted: Planted, monkeypatch: pytest.MonkeyPatch) -> None:
    never = threading.Event()
    monkeypatch.setattr(Planted, "act", staticmethod(lambda step: never.wait()))
    monkeypatch.setattr(tracking, "MOST_WAITING", 3)
    monkeypatch.setattr(tracking, "LONGEST_WAIT", 0.05)
    printed = track(store, planted, 9, {"steps": 9})
    never.set()
    assert "did not get 11 entries" in printed, "an evaluation, nine steps and the end"
    assert store.metrics()[-1]["step"] == 9


def test_a_stopped_run_has_no_summary_and_goes_on(store: RunStore, planted: Planted) -> None:
    track(store, planted, 2, None)
    assert planted.log[-1] == ("close", None)
    sent = read_sent(store.folder / "trackers" / "planted.json")
    assert sent is not None and (sent.step, sent.evaluations, sent.closed) == (2, [0], False)
    planted.log.clear()
    with Tracking([planted], store, LiveView(lines=True, console=Console(quiet=True))) as told:
        told.go_on(1)  # the checkpoint is older than what was sent
        told.step({"step": 2, "stage": "rl", "stage_step": 2, "reward": 0.5}, {})
        told.step({"step": 3, "stage": "rl", "stage_step": 3, "reward": 0.5}, {})
        told.finish({"steps": 3})
    assert planted.log == [("open", {"run": sent.id}), (3, {"train/reward": 0.5}), ("close", {"steps": 3.0})]


def test_what_the_queue_lost_before_a_kill_is_sent_after_a_resume(store: RunStore, planted: Planted) -> None:
    evaluate(store, 0, "before", 0.5, tasks=4)
    record_steps(store, [(step, "rl", step, 0.5) for step in (1, 2, 3)])
    with Tracking([planted], store, LiveView(lines=True, console=Console(quiet=True))) as told:
        told.go_on(3)
    assert [entry[0] for entry in planted.log if len(entry) == 2] == ["open", 0, 1, 2, 3, "close"]


def test_steps_of_before_a_roll_back_are_reported(store: RunStore, planted: Planted) -> None:
    console = Console(record=True, width=500, file=StringIO())
    with Tracking([planted], store, LiveView(lines=True, console=console)) as told:
        told.go_on(0)
        for step in (1, 2, 3, 4):
            told.step({"step": step, "stage": "rl", "stage_step": step, "reward": 0.1}, {})
        told.go_on(2)
        told.step({"step": 3, "stage": "rl", "stage_step": 3, "reward": 0.9}, {})
    assert "planted cannot take back steps 3 to 4, and keeps those of before the roll-back" in console.export_text()
    assert [entry[1]["train/reward"] for entry in planted.log if entry[0] == 3] == [0.1]


def test_a_finished_run_that_is_resumed_opens_nothing(store: RunStore, planted: Planted) -> None:
    track(store, planted, 2, {"steps": 2})
    planted.log.clear()
    with Tracking([planted], store, LiveView(lines=True, console=Console(quiet=True))) as told:
        told.go_on(2)
        told.finish({"steps": 2})
    assert planted.log == []


def test_a_damaged_file_of_what_was_sent_is_no_reason_to_send_again(store: RunStore, planted: Planted) -> None:
    track(store, planted, 2, None)
    (store.folder / "trackers" / "planted.json").write_text('{"id": 1}')
    printed = track(store, planted, 3, {"steps": 3})
    assert "planted.json is damaged, so it is unknown what the tracker has" in printed
    assert len([entry for entry in planted.log if entry[0] == 2 and len(entry) == 2]) == 1


def test_texts_are_cut_and_tables_bounded(store: RunStore, planted: Planted, monkeypatch: pytest.MonkeyPatch) -> None:
    record_steps(store, [(1, "rl", 1, 0.5)])
    [entry] = recorded_entries(store)
    monkeypatch.setattr(Planted, "longest_text", 10)
    samples = samples_of(store, entry, planted)
    assert len(samples) == 3 and samples[0].prompt.startswith("What is ")
    assert samples[0].completion[10:].startswith("… (")
    assert samples[0].advantage == pytest.approx((samples[0].reward or 0.0) - 0.7)
    assert samples_of(store, entry, Planted(samples=0)) == []
    assert len(samples_of(store, entry, Planted(samples=None))) == 16
    assert not planted.takes_rollouts(3) and planted.takes_rollouts(4) and planted.takes_rollouts(1)


def test_numbers_have_the_names_of_the_record() -> None:
    line = {"step": 3, "stage": "rl", "stage_step": 1, "reward": 1, "loss": None, "reward/format": 0.5}
    step = step_entry(line, {"seconds_total": 2.0, "stage": "rl"})
    assert (step.step, step.stage_step) == (3, 1)
    assert step.values == {"train/reward": 1.0, "train/reward/format": 0.5, "time/seconds_total": 2.0}
    found = evaluation_entry(
        2,
        {"name": "rl", "step": 5, "accuracy": 0.5, "accuracy_interval": [0.25, 0.75], "verifier": "match",
         "pass_at_k": {"1": 0.5, "8": None}, "searched": {"accuracy": 0.75}},
    )  # fmt: skip
    assert found.values == {
        "eval/accuracy": 0.5, "eval/accuracy_low": 0.25, "eval/accuracy_high": 0.75, "eval/pass_at_1": 0.5,
        "eval/searched/accuracy": 0.75,
    }  # fmt: skip
    assert total([step, found]) == "1 step and 1 evaluation"


def test_trackers_in_a_recipe() -> None:
    assert find_recipe("grpo", ["trackers=[tensorboard]"]).trackers == (TensorBoard(),)
    assert find_recipe("grpo", ["trackers=tensorboard"]).trackers == (TensorBoard(),)
    both = find_recipe("grpo", ["trackers=[tensorboard, {kind: csv, every: 5}]", "trackers+=jsonl"]).trackers
    assert [tracker.kind for tracker in both] == ["tensorboard", "csv", "jsonl"]
    assert find_recipe("grpo").trackers == ()
    with pytest.raises(UserError, match="'csv' is there twice"):
        find_recipe("grpo", ["trackers=[csv, csv]"])
    with pytest.raises(UserError, match="no tracker named 'tensorbord'; did you mean 'tensorboard'"):
        find_recipe("grpo", ["trackers=[tensorbord]"])


def test_a_missing_package_is_found_before_the_run(monkeypatch: pytest.MonkeyPatch, planted: Planted) -> None:
    monkeypatch.setattr(Planted, "package", "not_installed_anywhere")
    with pytest.raises(UserError, match=r"needs the package 'not_installed_anywhere'.*pip install 'posttrain\["):
        planted.check()


def test_an_export_that_fails_is_one_error(store: RunStore, planted: Planted, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UserError, match="nothing to export"):
        export(store.folder, planted)
    record_steps(store, [(1, "rl", 1, 0.5)])

    def refuse(step: int) -> None:
        raise SystemExit(2)

    monkeypatch.setattr(Planted, "act", staticmethod(refuse))
    with pytest.raises(RunFailed, match="planted failed: SystemExit: 2"):
        export(store.folder, planted)
    assert not (store.folder / "trackers").exists(), "an export leaves the run as it was"
    assert Sender(planted, store.folder, file=None).sent.step == 0


SETTINGS = [
    "model=tiny", "tasks.size=60", "evaluation.holdout=6", "evaluation.every=3", "steps=8", "prompts=2", "rollout.n=3",
    "rollout.sampling.max_tokens=8", "reward=mine.py:score", "checkpoints.every_steps=3", "threads=1",
]  # fmt: skip


@pytest.mark.slow
def test_runs_with_and_without_trackers_are_the_same_also_when_killed(tmp_path: Path) -> None:
    accumulator = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    (tmp_path / "mine.py").write_text("def score(completion, task):\n    return sum(map(ord, completion)) % 7 / 6\n")
    new_folder(tmp_path / "tiny", layers=1, width=32, heads=2, kv_heads=1, context=64)
    finish(command(tmp_path, "run", "grpo", *SETTINGS, "--runs", "alone"))
    trackers = "trackers=[tensorboard, jsonl]"
    process = command(tmp_path, "run", "grpo", *SETTINGS, trackers, "--runs", "tracked")
    run = tmp_path / "tracked" / "grpo-1"
    while steps_done(run) < 5:
        assert process.poll() is None, process.communicate()[0]
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    finish(command(tmp_path, "resume", str(run)))
    ours, theirs = contents(run), contents(tmp_path / "alone" / "grpo-1")
    assert {name for name in ours | theirs if ours.get(name) != theirs.get(name)} == {"recipe.yaml"}
    assert not [message for kind, message in history(run) if kind == "tracker"]
    events = accumulator.EventAccumulator(str(run / "trackers" / "tensorboard"))
    events.Reload()
    assert [event.step for event in events.Scalars("train/reward")] == list(range(1, 9))
    assert [event.step for event in events.Scalars("eval/accuracy")] == [0, 3, 6, 8]
    lines = (run / "trackers" / "jsonl" / "metrics.jsonl").read_text().splitlines()
    steps = [line["step"] for line in map(json.loads, lines) if "train/reward" in line]
    # A kill between the note of a step and the step itself loses that one here, and doubles none.
    assert len(set(steps)) == len(steps) >= 7
