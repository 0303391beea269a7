"""What annotators are called."""

import json
from pathlib import Path

import numpy as np
import pytest

from posttrain.components.diagnostics.annotators import Annotators
from posttrain.components.tasks.files import Files
from posttrain.errors import UserError
from posttrain.statistics.logistic import sigmoid

SOUND = {"ann": (1.5, 0.0), "bob": (1.5, 0.0), "eve": (1.5, 0.0)}
PLANTED = SOUND | {"first": (1.5, 2.0), "lots": (0.0, 0.0), "wrong": (-1.5, 0.0)}


def file(folder: Path, annotators: dict[str, tuple[float, float]], *, placed: bool = True, each: int = 120) -> Path:
    """Comparisons of eight answers to each of twelve prompts, of which higher numbers are better."""
    rng = np.random.default_rng(3)
    rows = []
    for name, (scale, offset) in annotators.items():
        for _ in range(each):
            prompt, (i, j) = int(rng.integers(12)), map(int, rng.choice(8, 2, replace=False))
            wins = rng.random() < sigmoid(scale * (i - j) / 2 + offset)
            pair = {"chosen": f"answer {i if wins else j}", "rejected": f"answer {j if wins else i}"}
            more = {"first": "chosen" if wins else "rejected"} if placed else {}
            rows.append({"prompt": f"prompt {prompt}", **pair, "annotator": name, **more})
    path = folder / "pairs.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_planted_annotators_are_named_by_their_own_fault(tmp_path: Path) -> None:
    found = Annotators(tasks=Files(path=str(file(tmp_path, PLANTED)))).examine()
    said = {name: row["verdict"] for name, row in found.values["annotators"].items()}
    assert said == {
        **dict.fromkeys(SOUND, "reliable"),
        "first": "reliable, prefers the first",
        "lots": "random",
        "wrong": "reversed",
    }
    assert found.values["comparisons"] == 720 and found.values["answers"] == 96
    assert found.values["annotators"]["wrong"]["kappa"] < 0 < found.values["annotators"]["ann"]["kappa"]
    assert any(line.startswith("wrong: reversed (120 comparisons, scale -") for line in found.lines)
    best = [row["answers"][0]["text"] for row in found.values["merits"]]
    assert sum(text in ("answer 7", "answer 6") for text in best) >= 7


def test_without_places_offsets_are_not_fitted_and_few_comparisons_are_too_little(tmp_path: Path) -> None:
    path = file(tmp_path, SOUND, placed=False)
    lonely = {"prompt": "prompt 1", "chosen": "answer 1", "rejected": "answer 2", "annotator": "new"}
    path.write_text(path.read_text() + json.dumps(lonely) + "\n")
    found = Annotators(tasks=Files(path=str(path))).examine()
    assert "offset" not in found.values["annotators"]["ann"]
    assert found.values["annotators"]["new"]["verdict"] == "too little"


def test_bad_data_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="of at least two"):
        Annotators(tasks=Files(path=str(file(tmp_path, {"ann": (1.0, 0.0)})))).examine()
    rows = [{"prompt": "p", "chosen": "a", "rejected": "b", "first": x, "annotator": "n"} for x in ("chosen", "left")]
    (tmp_path / "odd.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with pytest.raises(UserError, match="in every row"):
        Annotators(tasks=Files(path=str(tmp_path / "odd.jsonl"))).examine()
    (tmp_path / "none.jsonl").write_text(json.dumps({"prompt": "p", "chosen": "a", "rejected": "b"}) + "\n")
    with pytest.raises(UserError, match="where a name is needed"):
        Annotators(tasks=Files(path=str(tmp_path / "none.jsonl"))).examine()


def test_unconnected_comparisons_are_reported(tmp_path: Path) -> None:
    pairs = [("a", "b"), ("c", "d")]
    rows = [{"prompt": "p", "chosen": x, "rejected": y, "annotator": n} for n in "mn" for x, y in pairs]
    (tmp_path / "loose.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = Annotators(tasks=Files(path=str(tmp_path / "loose.jsonl"))).examine()
    assert found.values["unconnected"] == ["p"]
    assert any("1 prompts have answers that no chain of comparisons connects" in line for line in found.lines)
    assert any("compare answers of different parts" in line for line in found.lines)
