"""Explanations: likelihoods by hand, with a model that gives every token a number."""

from typing import Any

import numpy as np
import pytest
from pydantic import ValidationError

from posttrain.components.diagnostics import Finding, Subject, _likelihoods
from posttrain.components.diagnostics.explanations import ROWS, Explanations
from posttrain.components.tasks.arithmetic import Arithmetic
from posttrain.engines import Sampling
from posttrain.errors import UserError
from posttrain.types import Completion
from tests.builders import ScriptedSampler


class Writer(ScriptedSampler):
    """Writes one text where the prompt shows an answer, and another one where it does not."""

    def __init__(self, own: str, explained: str) -> None:
        super().__init__("policy")
        self.texts = own, explained

    def bind(self, *key: int | str) -> "Writer":
        return self

    async def sample(
        self, token_ids: np.ndarray, n: int, sampling: Sampling, vectors: np.ndarray | None = None
    ) -> list[Completion]:
        assert sampling.stop == ("####",)
        ids = np.array([*self.texts["see" in self.decode(token_ids)].encode()], np.int64)
        return [Completion(token_ids=ids, logp=np.zeros(len(ids), np.float32), stop_reason="stop", version=0, text="")]


def examine(monkeypatch: pytest.MonkeyPatch, own: str, explained: str, **settings: Any) -> Finding:
    """A token's log-probability is minus a hundredth of its id, that of the end token -1."""

    def logps(policy: Any, written: Any) -> list[np.ndarray]:
        return [np.where(ids == 0, -1.0, -ids / 100)[before:].astype(np.float32) for ids, before in written]

    monkeypatch.setattr(_likelihoods, "token_logps", logps)
    unused: Any = None
    settings = {"tasks": Arithmetic(size=3, demonstrate=True), "request": "{question} see {answer}", **settings}
    serve: Any = lambda policy: Writer(own, explained)  # noqa: E731
    return Explanations(**settings).examine(Subject(name="model", load=lambda: unused, serve=serve))


def test_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    """Letters a have the id 97, signs # the id 35: two and four of them before the answer, whose bytes have theirs."""
    finding = examine(monkeypatch, "aaaa####", "aa####")
    found = finding.values
    assert found["written"] == {"own": 3, "explained": 3, "expert": 3}
    tasks = Arithmetic(size=3).load()
    ends = [[*f" {task.answer}".encode()] for task in tasks]
    explained = np.mean([((2 * 97 + 4 * 35 + sum(ids)) / 100 + 1) / (6 + len(ids) + 1) for ids in ends])
    shown = [[*task.demonstrations[0].encode()] for task in tasks]
    expert = np.mean([(sum(ids) / 100 + 1) / (len(ids) + 1) for ids in shown])
    assert found["nats_per_token"]["explained"]["mean"] == pytest.approx(explained)
    assert found["nats_per_token"]["expert"]["mean"] == pytest.approx(expert)
    assert found["likelier"]["mean"] == pytest.approx(expert - explained)
    answers = [-sum(ids) / 100 - 1 for ids in ends]
    assert found["answer"]["own"]["mean"] == found["answer"]["explained"]["mean"] == pytest.approx(np.mean(answers))
    assert found["leading"]["mean"] == 0.0, "the same answer after either, and here a token's chance is its own"
    assert finding.lines[2].endswith("+0.000 [+0.000, +0.000] nats (3 tasks)")
    assert ROWS == (118,)


def test_what_does_not_come_to_the_marker_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    finding = examine(monkeypatch, "aaaa", "aa####", tasks=Arithmetic(size=3, demonstrate=False))
    assert finding.values["written"] == {"own": 0, "explained": 3, "expert": 0}
    assert finding.values["likelier"] is None and finding.values["leading"] is None
    assert finding.lines[1].endswith("not defined")


def test_a_request_shows_the_answer() -> None:
    with pytest.raises(ValidationError, match=r"needs \{answer\}"):
        Explanations(tasks=Arithmetic(size=1), request="{question}")


def test_answers_are_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    from posttrain.components.tasks.worked_solutions import WorkedSolutions
    from posttrain.types import Task

    monkeypatch.setattr(WorkedSolutions, "load", lambda self: [Task(key="bare", prompt="?")])
    with pytest.raises(UserError, match="1 of 1 tasks have no answer to be explained; the first is bare"):
        examine(monkeypatch, "", "", tasks=WorkedSolutions(size=1))
