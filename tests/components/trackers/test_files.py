"""CSV and JSON lines."""

import csv
import json
from pathlib import Path

import pytest

from posttrain.components.trackers import Sample, flat
from posttrain.components.trackers._rows import markdown
from posttrain.components.trackers.csv import Csv, Tables
from posttrain.components.trackers.jsonl import Jsonl
from tests.components.trackers.sending import export, metrics, send_twice


def test_csv_of_a_run(run: Path, tmp_path: Path) -> None:
    export(run, Csv(out=str(tmp_path), every=6, samples=3))
    with (tmp_path / run.name / "csv" / "metrics.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    rewards = [(int(row["step"]), float(row["train/reward"])) for row in rows if row["train/reward"]]
    assert rewards == metrics(run, "reward")
    assert [row["step"] for row in rows if row["eval/accuracy"]] == ["0", "6"]
    with (tmp_path / run.name / "csv" / "samples.csv").open(newline="") as file:
        samples = list(csv.DictReader(file))
    assert [(row["step"], row["split"]) for row in samples] == [
        (step, split) for step, split in (("0", "eval"), ("1", "train"), ("6", "train"), ("6", "eval")) for _ in "123"
    ]
    assert samples[3]["prompt"].endswith("?\n") and samples[3]["reward"] in ("0.0", "1.0")


def test_csv_has_new_columns_at_its_end_and_no_formulas(tmp_path: Path) -> None:
    tables = Tables(tmp_path)
    tables.log(1, {"a": 1.0})
    tables.log(2, {"b": 2.0})
    tables.log(3, {"a": 3.0, "b": 4.0})
    assert (tmp_path / "metrics.csv").read_text().splitlines() == ["step,a,b", "1,1.0,", "2,,2.0", "3,3.0,4.0"]
    tables.table(1, "train", [Sample(task="t", prompt="=1+1", completion="2")])
    assert ",'=1+1,2," in (tmp_path / "samples.csv").read_text()


def test_json_lines_of_a_run_hold_every_rollout(run: Path, tmp_path: Path) -> None:
    export(run, Jsonl(out=str(tmp_path)))
    folder = tmp_path / run.name / "jsonl"
    lines = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [(line["step"], line["train/reward"]) for line in lines if "train/reward" in line] == metrics(run, "reward")
    samples = [json.loads(line) for line in (folder / "samples.jsonl").read_text().splitlines()]
    assert len(samples) == 6 * 16 + 2 * 8
    first = next(sample for sample in samples if sample["split"] == "train")
    assert first["advantage"] == pytest.approx(first["reward"] - 0.7)
    assert json.loads((folder / "summary.json").read_text())["steps"] == 6
    assert json.loads((folder / "recipe.json").read_text())["name"] == "quickstart"


def test_what_cannot_be_taken_back_is_not_sent_twice(run: Path, tmp_path: Path) -> None:
    sender = send_twice(run, Jsonl(out=str(tmp_path), samples=0), tmp_path / "sent.json")
    lines = (tmp_path / run.name / "jsonl" / "metrics.jsonl").read_text().splitlines()
    assert [json.loads(line)["step"] for line in lines] == [0, 1, 2, 3, 4, 5, 6, 6]
    assert json.loads((tmp_path / "sent.json").read_text()) == vars(sender.sent)
    assert (sender.sent.step, sender.sent.evaluations, sender.sent.closed) == (6, [0, 6], True)


def test_markdown_cannot_leave_its_cell() -> None:
    sample = Sample(task="t", prompt="a|b\n`c`", completion="", reward=0.25, group=3)
    row = markdown([sample]).splitlines()[2]
    assert row == "| `t` | `a¦b↵´c´` |  | 0.25 |  |  |  | 3 | 0 |  |"


def test_leaves_of_a_tree() -> None:
    assert flat({"a": {"b": [1, {"c": None}]}, "d": [], "e": "x"}) == {"a.b.0": 1, "a.b.1.c": None, "e": "x"}
