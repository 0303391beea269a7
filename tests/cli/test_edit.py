"""`posttrain edit`, as it is called."""

import json
from pathlib import Path

import pytest
import torch

from posttrain.cli import main
from posttrain.components.edits.surgery import Surgery
from posttrain.models import Model
from posttrain.policies.folder import new_folder
from posttrain.policies.loading import load_language_model
from posttrain.runs.editing import Labelled, Trial, Words, read_texts


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    new_folder(Path("m"), layers=1, width=32, heads=2, kv_heads=1, context=64)
    rows = [{"text": f"it was {'bad' if i % 2 else 'good'} {i}", "label": i % 2} for i in range(40)]
    Path("texts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_write_and_undo(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["edit", "m", "--away", "texts.jsonl", "share=0.1", "--out", "out", "--json"]) == 0
    answer = json.loads(capfd.readouterr().out)
    assert answer["rows"] == 10 and answer["of"] == 96 and answer["word_accuracy"] == 1.0
    assert Path("out/model.safetensors").read_bytes() != Path("m/model.safetensors").read_bytes()
    assert main(["edit", "out", "--undo", "--out", "back"]) == 0
    assert "10 rows undone" in capfd.readouterr().out
    assert Path("back/model.safetensors").read_bytes() == Path("m/model.safetensors").read_bytes()


@pytest.mark.slow
def test_a_sweep_has_controls_and_leaves_the_model(capfd: pytest.CaptureFixture[str]) -> None:
    before = Path("m/model.safetensors").read_bytes()
    assert main(["edit", "m", "--away", "texts.jsonl", "share=0.1", "--sweep", "1:-1:-1", "--json"]) == 0
    found = json.loads(capfd.readouterr().out)["effects"]
    names = ["edit", "aligned rows", "random rows", "random direction"]
    assert [(e["edit"], e["strength"]) for e in found] == [
        *((name, 1.0) for name in names),
        ("edit", 0.0),
        *((name, -1.0) for name in names),
    ]
    kept = ("--sweep", "1:-1:-1", "--keep", "effects.json", "--json")
    for _ in range(2):
        assert main(["edit", "m", "--away", "texts.jsonl", "share=0.1", *kept]) == 0
        assert json.loads(capfd.readouterr().out)["effects"] == found
    assert main(["edit", "m", "--away", "texts.jsonl", "share=0.2", *kept]) == 2
    assert "holds results of other edit" in capfd.readouterr().err
    assert len({e["perplexity"] for e in found}) == len(found) and Path("m/model.safetensors").read_bytes() == before


def test_words_by_hand() -> None:
    """Smoothed: p(bad | away) is 2/3 and p(bad | not) 1/3."""
    words = Words.fitted([Labelled(text="Bad", away=True), Labelled(text="good", away=False)])
    assert words.away("bad bad good") and not words.away("good") and not words.away("new words")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("m", "--out", "o"), "give the texts to edit away from"),
        (("m", "--away", "texts.jsonl"), "name the folder to write, --out FOLDER, or the strengths"),
        (("m", "--undo", "--out", "o"), "has no edit.safetensors"),
        (
            ("m", "--away", "texts.jsonl", "alhpa=2", "--out", "o"),
            "Surgery has no field 'alhpa'; did you mean",
        ),
        (("m", "--away", "bad.jsonl", "--out", "o"), "bad.jsonl line 2 has text 'x' and label 3"),
        (("m", "--away", "one.jsonl", "--out", "o"), "both labels are needed"),
        (
            ("m", "--out", "o", "--away", "texts.jsonl", "--sweep"),
            "name the folder to write, --out FOLDER, or the strengths",
        ),
        (("m", "--away", "texts.jsonl", "--out", "m"), "is there and not an empty folder"),
    ],
)
def test_mistakes(words: tuple[str, ...], message: str, capfd: pytest.CaptureFixture[str]) -> None:
    Path("bad.jsonl").write_text('{"text": "x", "label": 1}\n{"text": "x", "label": 3}\n')
    Path("one.jsonl").write_text('{"text": "x", "label": 1}\n' * 20)
    assert main(["edit", *words]) == 2
    assert message in capfd.readouterr().err
    assert not Path("o").exists()


def test_steering_is_undone() -> None:
    policy = load_language_model("policy", Model(source="m"), {}, torch.device("cpu"))
    trial = Trial(policy, read_texts("texts.jsonl"))
    plain, none, steered = (trial.steered(torch.ones(32), strength) for strength in (0.0, 0.0, 5.0))
    assert plain == none and steered.perplexity != plain.perplexity
    assert trial.effect("edit", Surgery(), 0.0).perplexity == pytest.approx(plain.perplexity, rel=1e-4)
