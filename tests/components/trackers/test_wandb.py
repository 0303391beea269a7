"""Runs of Weights & Biases, offline, read back from the file that ``wandb sync`` uploads."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from posttrain.components.trackers.wandb import WandB
from tests.components.trackers.sending import export, metrics, send_twice

pytestmark = pytest.mark.slow

BLOCK, HEAD, FILE_HEAD = 32_768, 7, 7


@pytest.fixture(scope="module", autouse=True)
def library(libraries: None) -> None:
    pytest.importorskip("wandb", reason="needs posttrain[wandb]: make test puts it in .trackers")


def records(path: Path) -> Iterator[Any]:
    """The records of a file in the format of LevelDB's log, which begins with a header of W&B's own."""
    from wandb.proto import wandb_internal_pb2

    content, at, parts = path.read_bytes(), FILE_HEAD, b""
    assert content[:4] == b":W&B"
    while at + HEAD <= len(content):
        if BLOCK - at % BLOCK < HEAD:
            at += BLOCK - at % BLOCK
            continue
        length, kind = int.from_bytes(content[at + 4 : at + 6], "little"), content[at + 6]
        parts += content[at + HEAD : at + HEAD + length]
        at += HEAD + length
        if kind in (1, 4):  # a whole record, or the last part of one
            record = wandb_internal_pb2.Record()
            record.ParseFromString(parts)
            parts = b""
            yield record


def files(folder: Path) -> list[Path]:
    """The files, complete: the library's own process writes the last block after `finish`, and before it ends itself.

    A program waits for that process when it ends.
    """
    import wandb

    wandb.teardown()
    return sorted(folder.glob("wandb/offline-run-*/run-*.wandb"))


def history(path: Path) -> list[tuple[int, dict[str, Any]]]:
    """Step and values of each line."""
    return [
        (
            record.history.step.num,
            {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in record.history.item},
        )
        for record in records(path)
        if record.WhichOneof("record_type") == "history"
    ]


def test_a_run_is_in_the_file(run: Path, tmp_path: Path) -> None:
    export(run, WandB(out=str(tmp_path), project="sums", every=6, samples=3))
    [path] = files(tmp_path)
    rows = history(path)
    found = [(step, values["train/reward"]) for step, values in rows if "train/reward" in values]
    assert found == metrics(run, "reward")
    assert [step for step, values in rows if "eval/accuracy" in values] == [0, 6]
    [started] = [record.run for record in records(path) if record.WhichOneof("record_type") == "run"]
    assert started.project == "sums" and started.display_name == run.name
    config = {item.key: json.loads(item.value_json) for item in started.config.update}
    assert config["stages"]["rl"]["steps"] == 24
    tables = [json.loads(table.read_text()) for table in path.parent.glob("files/media/table/train_samples/*.json")]
    assert [len(table["data"]) for table in tables] == [3, 3], "of steps 1 and 6"
    assert tables[0]["columns"][:5] == ["task", "prompt", "completion", "reward", "advantage"]


def test_a_resumed_run_goes_on_with_the_same_id(run: Path, tmp_path: Path) -> None:
    send_twice(run, WandB(out=str(tmp_path)), tmp_path / "sent.json")
    found = files(tmp_path)
    assert len({path.name for path in found}) == 1, "one id"
    rows = [row for path in found for row in history(path)]
    assert [(s, v["train/reward"]) for s, v in rows if "train/reward" in v] == metrics(run, "reward")
