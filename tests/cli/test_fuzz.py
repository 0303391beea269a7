"""posttrain fuzz, as it is called."""

import json
from pathlib import Path

import pytest

from posttrain.cli import main

SOURCE = '''def parse(text: str) -> int:
    """A number of lines."""
    if text.startswith("="):
        return int(text[1:])
    return len(text)


def two(a, b):
    return a
'''


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("target.py").write_text(SOURCE)


def test_a_text_is_fuzzed_and_goes_on(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["fuzz", "target.py:parse", "--budget", "300", "--json"]) == 1
    first = json.loads(capfd.readouterr().out)
    assert first["tried"] == 300 and first["covered"] == 3 and first["not_covered"] == [9]
    assert [one["end"] for one in first["crashes"]] == ["ValueError"] and first["hangs"] == []
    assert main(["fuzz", "target.py:parse", "--budget", "400"]) == 1
    printed = capfd.readouterr().out
    assert "400 inputs, 0 of another form" in printed and "crash: ValueError after line 4: " in printed
    assert main(["fuzz", "target.py:parse", "--expected", "ValueError", "--out", "other", "--budget", "300"]) == 0


def test_a_model_writes_inputs(capfd: pytest.CaptureFixture[str]) -> None:
    code = main(["fuzz", "target.py:two", "--model", "pebble", "--budget", "33", "--max-tokens", "4", "--json"])
    found = json.loads(capfd.readouterr().out)
    assert code == 0 and found["model"] == "pebble" and found["tried"] == 33
    entries = [json.loads(line) for line in Path("fuzz-two/default/posttrain.jsonl").read_text().splitlines()]
    assert len(entries[2]["lines"]) == 2, "half of a batch is written for two lines"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["target.py"], "write the file and the function: target.py:parse"),
        (["target.py:none"], "no function 'none' at the top level; functions there: parse, two"),
        (["missing.py:parse"], "missing.py"),
        (["target.py:two", "--form", "str"], "an input of the form str is for one parameter; write --form literals"),
        (["target.py:parse", "--prompt", "{what}"], "has a place that is not known"),
        (["target.py:parse", "--corpus", "none"], "no folder none with inputs"),
    ],
)
def test_mistakes_are_stated(arguments: list[str], message: str, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["fuzz", *arguments]) == 2
    assert message in " ".join(capfd.readouterr().err.split())
    assert not Path("fuzz-parse").exists()
