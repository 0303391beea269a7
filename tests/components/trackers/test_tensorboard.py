"""Event files, read back with TensorBoard's own reader."""

from pathlib import Path
from typing import Any

import pytest

from posttrain.components.trackers.tensorboard import TensorBoard
from posttrain.errors import UserError
from tests.components.trackers.sending import export, metrics, send_twice

accumulator = pytest.importorskip(
    "tensorboard.backend.event_processing.event_accumulator", reason="needs posttrain[tensorboard]"
)


def read(folder: Path) -> Any:
    events = accumulator.EventAccumulator(str(folder), size_guidance={"scalars": 0, "tensors": 0})
    events.Reload()
    return events


def scalars(events: Any, tag: str) -> list[tuple[int, float]]:
    return [(event.step, pytest.approx(event.value)) for event in events.Scalars(tag)]


def test_a_run_is_in_the_event_file(run: Path, tmp_path: Path) -> None:
    assert export(run, TensorBoard(out=str(tmp_path), every=3, samples=2)) == "6 steps and 2 evaluations"
    events = read(tmp_path / run.name / "tensorboard")
    assert scalars(events, "train/reward") == metrics(run, "reward")
    assert scalars(events, "time/seconds_total") == [(step, 1.5) for step in range(1, 7)]
    assert [event.step for event in events.Scalars("eval/accuracy")] == [0, 6]
    texts = [event.tensor_proto.string_val[0].decode() for event in events.Tensors("train/samples/text_summary")]
    assert [event.step for event in events.Tensors("train/samples/text_summary")] == [1, 3, 6]
    head, rule, *rows = texts[0].splitlines()
    assert head.startswith("| task | prompt | completion | reward | advantage |") and set(rule) <= set("| -")
    assert len(rows) == 2 and "`What is" in rows[0] and "#### " in rows[0]
    [recipe] = [event.tensor_proto.string_val[0].decode() for event in events.Tensors("recipe/text_summary")]
    assert '"digits": 2' in recipe
    assert "hparams" in events.PluginTagToContent("hparams") or "_hparams_/experiment" in events.PluginTagToContent(
        "hparams"
    )


def test_a_resumed_run_has_each_step_once(run: Path, tmp_path: Path) -> None:
    sender = send_twice(run, TensorBoard(out=str(tmp_path)), tmp_path / "sent.json")
    events = read(Path(sender.sent.reference["folder"]))
    assert scalars(events, "train/reward") == metrics(run, "reward")
    assert [event.step for event in events.Scalars("eval/accuracy")] == [0, 6]
    assert len(list(Path(sender.sent.reference["folder"]).iterdir())) == 3, "the first, the second, and its purge"


def test_a_place_with_another_run_is_refused(run: Path, tmp_path: Path) -> None:
    export(run, TensorBoard(out=str(tmp_path)))
    with pytest.raises(UserError, match="is not empty, and another run may be in it"):
        export(run, TensorBoard(out=str(tmp_path)))
