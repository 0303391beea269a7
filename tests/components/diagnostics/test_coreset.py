"""Calls of a verifier, of a tiny model."""

from typing import Any

import pytest
import torch

from posttrain.components.diagnostics import Subject
from posttrain.components.diagnostics.coreset import Coreset
from posttrain.components.rewards.regex import Regex
from posttrain.components.tasks.arithmetic import Arithmetic
from posttrain.engines import Sampling
from posttrain.engines.native import Native
from posttrain.models import Model
from posttrain.policies.folder import new_folder
from posttrain.policies.loading import load_policy


@pytest.fixture(scope="module")
def subject(tmp_path_factory: pytest.TempPathFactory) -> Subject:
    folder = tmp_path_factory.mktemp("models") / "tiny"
    new_folder(folder, layers=1, width=16, heads=2, kv_heads=1, context=64)
    return Subject(
        name="tiny",
        load=lambda: load_policy("policy", Model(source=str(folder)), {}, torch.device("cpu")),
        serve=lambda policy: Native().serve(policy, 0),
    )


def examined(subject: Subject, pattern: str) -> Any:
    tasks, sampling = Arithmetic(size=3), Sampling(max_tokens=4)
    rule = Coreset(tasks=tasks, verifier=Regex(pattern=pattern), prompts=2, pool=9, width=8, sampling=sampling)
    return rule.examine(subject)


def test_calls_until_a_correct_answer(subject: Subject) -> None:
    found = examined(subject, "(?s).*")
    assert found.values["counted"] == found.values["tasks"] == 2
    assert found.values["chosen"]["mean"] == found.values["random"]["mean"] == 1.0, "every answer is correct"
    assert examined(subject, "(?s).*").values == found.values


def test_tasks_without_a_correct_answer_are_left_out(subject: Subject) -> None:
    found = examined(subject, "never in any text")
    assert found.values["counted"] == 0 and found.values["chosen"] is None
    assert found.lines == ["0 of 2 tasks have a correct answer among 9"]
