"""posttrain eval --partners: a model with partners of other runs."""

import json
from pathlib import Path

import pytest

from posttrain.cli import main
from posttrain.errors import UserError
from posttrain.policies.folder import new_folder
from posttrain.runs.partners import read_partners

TALK = (
    "tasks={kind: halves, size: 12}",
    "reward.kind=match",
    "evaluation.holdout=4",
    "evaluation.sampling.max_tokens=4",
    "evaluation.rollout={kind: dialogue, max_turns: 3, form: {view: '{context}'}}",
    "threads=1",
)


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for seed, name in enumerate(("one", "two")):
        new_folder(tmp_path / name, layers=1, width=32, heads=2, kv_heads=1, context=128, seed=seed)
    new_folder(tmp_path / "three", layers=1, width=32, heads=2, kv_heads=1, context=128, words=("Which one",))


@pytest.mark.usefixtures("models")
def test_every_partner_is_an_evaluation_and_one_with_the_same_weights_changes_nothing(
    capfd: pytest.CaptureFixture[str],
) -> None:
    arguments = ["eval", "one", *TALK, "--partners", "two,one", "--budget", "turns=2,3"]
    assert main([*arguments, "--json"]) == 0
    found = json.loads(capfd.readouterr().out)["partners"]
    assert [(own["partner"], own["turns"]) for own in found] == [
        (name, turns) for name in ("own", "two", "one") for turns in (2, 3)
    ]
    assert all(len(own["accuracy_interval"]) == 2 for own in found)
    assert found[4:] == [{**own, "partner": "one"} for own in found[:2]], "the same weights"
    assert main(arguments) == 0
    assert capfd.readouterr().out.split()[:3] == ["partner", "turns", "accuracy"]


@pytest.mark.usefixtures("models")
def test_other_tokenizers_and_rollouts_without_a_partner_are_refused(capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["eval", "one", *TALK, "--partners", "three"]) == 2
    assert "its tokenizer is another one" in capfd.readouterr().err
    alone = [change for change in TALK if "dialogue" not in change]
    assert main(["eval", "one", *alone, "--partners", "two"]) == 2
    assert "meets no other model" in capfd.readouterr().err
    assert main(["eval", "one", *TALK, "--partners", "two", "--budget", "turns=1001"]) == 2
    assert "max_turns of the rollout 'dialogue'" in capfd.readouterr().err
    for text in ("", "a,,b", "a,a", "own"):
        with pytest.raises(UserError, match="--partners"):
            read_partners(text)
