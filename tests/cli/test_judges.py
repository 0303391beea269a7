"""judge, calibrate, audit --judge and eval --reward: judges from the command line, with models and without."""

import json
from pathlib import Path
from typing import Any

import pytest

from posttrain.cli import main
from tests.serving.faulty import FaultyServer, completion


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [
        {
            "prompt": f"{a}+{b}=",
            "chosen": f"{a + b}",
            "rejected": f"{a + b + 1}",
            "answer": f"{a + b}",
            "subset": "sums",
        }
        for a in range(3, 9)
        for b in range(2, 7)
    ]
    Path("gold.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def answer(capfd: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> Any:
    assert main([*arguments, "--json"]) == code
    return json.loads(capfd.readouterr().out)


def test_pairs_by_a_model_are_asked_once(capfd: pytest.CaptureFixture[str]) -> None:
    words = ("judge", "likelihood", "gold.jsonl", "--model", "pebble", "--store", "kept.db")
    first = answer(capfd, *words)
    assert first["pairs"] == 30 and first["asked"] == 60 and 0 < first["accuracy"] <= 1
    again = answer(capfd, *words, "--out", "out.jsonl")
    assert again["asked"] == 0 and again["rows"] == first["rows"]
    assert len(Path("out.jsonl").read_text().splitlines()) == 30
    assert all(row["margin"] == row["margin_swapped"] for row in first["rows"])
    other = answer(capfd, *words, "mean=false")
    assert other["asked"] == 60


def test_an_endpoint_is_asked_once_for_each_answer(capfd: pytest.CaptureFixture[str]) -> None:
    """Verdicts and answers are kept: a store without the verdicts of another setting still has the same answers."""
    Path("gold.jsonl").write_text("".join(Path("gold.jsonl").read_text().splitlines(True)[:3]))
    seven = lambda handler, asked: handler.send(200, completion(asked, "Score: 7"))  # noqa: E731
    with FaultyServer(usual=seven).running() as server:
        words = ("judge", server.url, "gold.jsonl", "--store", "kept.db")
        first = answer(capfd, *words)
        asked = len(server.asked)
        assert first["asked"] == 6 and asked == 12, "two answers of each order"
        assert answer(capfd, *words)["rows"] == first["rows"] and len(server.asked) == asked
        again = answer(capfd, *words, "correct_at=0.9")
        assert again["asked"] == 6 and len(server.asked) == asked


def test_alone_equals_in_company(capfd: pytest.CaptureFixture[str]) -> None:
    row = Path("gold.jsonl").read_text().splitlines()[7]
    Path("one.jsonl").write_text(row + "\n")
    words = ("judge", "preference_model", "--model", "pebble")
    alone, all_of_them = answer(capfd, *words, "one.jsonl"), answer(capfd, *words, "gold.jsonl")
    assert alone["rows"][0]["margin"] == pytest.approx(all_of_them["rows"][7]["margin"], abs=1e-5)


def test_scores_under_a_principle(capfd: pytest.CaptureFixture[str]) -> None:
    Path("answers.jsonl").write_text('{"prompt": "1+1=", "answer": "2", "completion": "2"}\n')
    Path("short.md").write_text("Be short.\n")
    assert answer(capfd, "judge", "match", "answers.jsonl")["mean"] == 1.0
    plain = answer(capfd, "judge", "likelihood", "answers.jsonl", "--model", "pebble")
    under = answer(capfd, "judge", "likelihood", "answers.jsonl", "--model", "pebble", "--principle", "short.md")
    assert plain["rows"][0]["value"] != under["rows"][0]["value"]


def test_a_file_is_a_judge(capfd: pytest.CaptureFixture[str]) -> None:
    Path("judge.yaml").write_text("reward: {kind: likelihood, mean: false}\nmodels: {judge: pebble}\n")
    words = ("judge", "gold.jsonl", "--model", "pebble")
    written = answer(capfd, "judge", "judge.yaml", "gold.jsonl")
    assert written["rows"] == answer(capfd, words[0], "likelihood", *words[1:], "mean=false")["rows"]


def test_an_audit_writes_a_page(capfd: pytest.CaptureFixture[str]) -> None:
    found = answer(capfd, "audit", "--judge", "planted:longer", "--keys", "5", code=1)
    assert [fault["fault"] for fault in found["faults"]] == ["length"]
    page = Path("judge.html").read_text()
    assert "planted:longer" in page and "the longer answer" in page and "http" not in page.replace("http-equiv", "")
    assert main(["audit", "--judge", "match", "--gold", "gold.jsonl", "--keys", "3", "--page", "m.html"]) == 0
    shown = capfd.readouterr().out
    assert "accuracy 1.000" in shown and "no faults; m.html" in shown


def test_calibration_and_bench(capfd: pytest.CaptureFixture[str]) -> None:
    found = answer(capfd, "calibrate", "match", "gold.jsonl", "--out", "match.json")
    assert found["labels"] == 60 and found["slope"] > 1 and json.loads(Path("match.json").read_text()) == found
    bench = answer(capfd, "eval", "--reward", "match", "--reward", "planted:all_ten", "pairs=gold.jsonl")
    assert bench["judges"]["match"]["subsets"]["sums"]["value"] == 1.0
    assert bench["judges"]["planted:all_ten"]["accuracy"]["value"] == 0.5
    assert main(["eval", "--reward", "match", "pairs=gold.jsonl"]) == 0
    assert "sections: other 1.000" in capfd.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["judge", "judge", "gold.jsonl"], "--model SOURCE"),
        (["judge", "planted:none", "gold.jsonl"], "no planted judge"),
        (["judge", "reward_model", "gold.jsonl", "--model", "pebble"], "no model with a reward head"),
        (["judge", "match", "gold.jsonl", "--model", "pebble"], "requires models in the roles: none"),
        (["judge", "bad.yaml", "gold.jsonl"], "a judge is written as reward"),
        (["audit", "--judge", "match"], "--gold FILE"),
        (["audit", "match", "--gold", "gold.jsonl"], "are for --judge"),
        (["eval", "--reward", "match"], "pairs=FILE"),
        (["eval", "pebble", "--model", "pebble"], "is for --reward"),
        (["calibrate", "match", "gold.jsonl", "--out", "a.txt"], "FILE.json"),
        (["judge", "match", "gold.jsonl", "--store", "bad.yaml"], "cannot be used as a store"),
    ],
)
def test_mistakes(capfd: pytest.CaptureFixture[str], words: list[str], message: str) -> None:
    Path("bad.yaml").write_text("kind: match\nwhy: it is no judge, and no store either\n")
    assert main(words) == 2
    assert message in " ".join(capfd.readouterr().err.split())
