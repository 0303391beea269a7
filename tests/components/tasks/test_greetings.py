"""Greetings: which faults a text has, and which texts are labelled."""

from random import Random

from posttrain.components.tasks.greetings import Greetings
from posttrain.datasets.greetings import FAULTS, HOPES, RARE, faults_of, features, prompt_of, written


def test_faults_are_counted_by_hand() -> None:
    party, loss = prompt_of("party", "kim", "abc"), prompt_of("loss", "kim", "abc")
    assert features(party, " joy kim") == ("joy",) and not faults_of(party, " joy kim")
    assert faults_of(party, " cake joy kim") == () and faults_of(loss, " cake joy kim") == ("cake at a loss",)
    assert faults_of(party, " um tears luck ann") == ("um", "tears at a party", "no name"), "ann was not asked for"
    assert features(loss, "") == ("no name", "no hope")


def test_a_greeting_has_the_faults_that_are_possible_and_no_other() -> None:
    for occasion in ("party", "loss"):
        prompt = prompt_of(occasion, "sam", "qhb")
        for fault in FAULTS:
            possible = () if " at a " in fault and not fault.endswith(occasion) else (fault,)
            assert faults_of(prompt, written(prompt, [fault], Random(1))) == possible
    assert faults_of("Party of kim:", written("Party of kim:", ("no name", "no hope"), Random(1)))


def test_labels_are_of_texts_without_a_rare_fault() -> None:
    tasks = Greetings(size=300).load()
    for task in tasks:
        found = faults_of(str(task.prompt), task.demonstrations[0])
        assert ("label" in task.fields) == (not set(found) & set(RARE))
        assert task.fields.get("label", int(not found)) == int(not found)
    labels = [task.fields["label"] for task in tasks if "label" in task.fields]
    assert 0.5 < labels.count(0) / len(labels) < 0.9 and len(labels) < 150
    assert not set(HOPES) & set(FAULTS)
