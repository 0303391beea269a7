"""A bank of cases with a small model of random weights, and prompts by hand."""

from pathlib import Path

import numpy as np
import pytest
import torch

from posttrain.components.diagnostics import Subject
from posttrain.components.diagnostics.case_bank import ROWS, CaseBank, _Bank, with_cases
from posttrain.components.rewards.match import Match
from posttrain.components.tasks.arithmetic import Arithmetic
from posttrain.engines import Sampling
from posttrain.engines.native import Native
from posttrain.errors import UserError
from posttrain.models import Model
from posttrain.policies.folder import new_folder
from posttrain.policies.loading import load_policy
from posttrain.statistics.case_bank import case_of, vector_of
from posttrain.types import Message, Task

CASES = [case_of("1+1=", "2", True), case_of("2+2=", "5", False), case_of("1+2=", "3", True)]


def test_right_and_wrong_cases_stand_in_blocks() -> None:
    task = Task(key="t", prompt="2+3=")
    text = "Right:\n1+1=2\n1+2=3\nWrong:\n2+2=5\nFollow the right ones.\n2+3="
    assert with_cases(task, CASES).prompt == text and with_cases(task, []) is task
    chat = Task(key="t", prompt=(Message(role="system", content="Add."), Message(role="user", content="2+3=")))
    shown = with_cases(chat, CASES).prompt
    assert isinstance(shown, tuple) and [m["content"] for m in shown] == ["Add.", text]


def test_no_cases_where_none_are_wanted_or_there_are_none() -> None:
    rng, query = np.random.default_rng(0), vector_of("1+1=")
    assert _Bank(k=0, cases=CASES).chosen("likeness", query, rng) == [] == _Bank(k=2).chosen("values", query, rng)
    full = _Bank(k=2, cases=CASES)
    assert full.chosen("none", query, rng) == [] and full.chosen("likeness", query, rng)[0] == 0
    assert full.chosen("learned", query, rng) == full.chosen("likeness", query, rng), "nothing was learned yet"


def test_the_bank_grows_and_the_weights_stay(tmp_path: Path) -> None:
    assert ROWS == (77,)
    folder = new_folder(tmp_path / "tiny", layers=1, width=16, heads=2, kv_heads=1, context=512)
    subject = Subject(
        name="tiny",
        load=lambda: load_policy("policy", Model(source=str(folder)), {}, torch.device("cpu")),
        serve=lambda policy: Native().serve(policy, 0),
    )
    settings = {"reward": Match(), "logged": 4, "tested": 2, "k": 2, "sampling": Sampling(max_tokens=2)}
    diagnostic = CaseBank(tasks=Arithmetic(size=6), **settings)  # type: ignore[arg-type]
    values = diagnostic.examine(subject).values
    assert values["cases"] == 4 and values["log_rows"] == 0 + 1 + 2 + 2 and values["weights_unchanged"]
    assert diagnostic.examine(subject).values == values, "it repeats"
    first = CaseBank(tasks=Arithmetic(size=6), credit="first", **settings)  # type: ignore[arg-type]
    assert first.examine(subject).values["log_rows"] == 3
    none = CaseBank(tasks=Arithmetic(size=6), **{**settings, "k": 0})  # type: ignore[arg-type]
    shares = none.examine(subject).values["success"]
    assert len({own["share"] for own in shares.values()}) == 1, "without cases all are the model alone"


def test_too_few_tasks_are_refused() -> None:
    nothing = Subject(name="x", load=lambda: None, serve=lambda policy: None)  # type: ignore[arg-type, return-value]
    with pytest.raises(UserError, match="need 300 tasks, got 6"):
        CaseBank(tasks=Arithmetic(size=6), reward=Match()).examine(nothing)
