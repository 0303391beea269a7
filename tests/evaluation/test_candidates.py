"""The likeliest of given answers, with hand-worked likelihoods."""

import asyncio
from collections.abc import Mapping, Sequence

import numpy as np
import pytest

from posttrain.components.rewards.label import Label
from posttrain.errors import UserError
from posttrain.evaluation.candidates import candidates_of, evaluate_candidates, likelihoods
from posttrain.evaluation.settings import Evaluation
from posttrain.types import Segment, Task, Trajectory

END = 0


class Likelihoods:
    """Tokens are bytes and 0 is the end; the log-probability of each is looked up by its letter."""

    context = 32

    def __init__(self, logp: Mapping[str, float]) -> None:
        self.logp_of = logp

    def bind(self, *key: int | str) -> "Likelihoods":
        return self

    def prompt(self, task: Task) -> Segment:
        return Segment(actor="prompt", token_ids=np.array(list(str(task.prompt).encode())), text=str(task.prompt))

    def encode_completion(self, prompt: object, text: str) -> np.ndarray:
        return np.array([*text.encode(), END])

    async def logp(self, token_ids: np.ndarray, *, temperature: float = 1.0, vectors: object = None) -> np.ndarray:
        return np.array([self.logp_of.get(chr(int(i)), -1.0) for i in token_ids[1:]])


def task(candidates: object, answer: str = "a", key: str = "k") -> Task:
    return Task(key=key, prompt="P:", answer=answer, fields={"candidates": candidates})


def best(logp: Mapping[str, float], candidates: Sequence[str], per: str = "token") -> str:
    server = Likelihoods(logp)
    verifier = Label(extract=("last_line",))
    found = evaluate_candidates(server, [task(candidates)], verifier, per=per, correct_at=1.0)  # type: ignore[arg-type]
    return found.trajectories[0].completion


def test_the_mean_of_tokens_and_the_end_counts() -> None:
    """ "a": (-1 - 4) / 2; "ab": (-1 - 1 - 4) / 3; without the end both would be -1."""
    logp = {"a": -1.0, "b": -1.0, "\0": -4.0}
    [short, long] = asyncio.run(likelihoods(Likelihoods(logp), task([]), ["a", "ab"]))  # type: ignore[arg-type]
    assert short.tolist() == [-1.0, -4.0] and long.tolist() == [-1.0, -1.0, -4.0]
    assert best(logp, ["a", "ab"]) == "ab" and best(logp, ["a", "ab"], per="whole") == "a"
    assert best({**logp, "\0": -0.1}, ["a", "ab"]) == "a"


def test_the_first_of_equals() -> None:
    assert best({}, ["b", "a"]) == "b" and best({}, ["a", "b"]) == "a"


def test_the_summary() -> None:
    """Two tasks, one answered right; perplexities e and e; one of two written answers is outside."""
    tasks = [task(["a", "b"], "a", "one"), task(["a", "b"], "b", "two")]
    written = [
        Trajectory(task=own, segments=(Segment(actor="policy", token_ids=np.zeros(0), text=text),), stop_reason="stop")
        for own, text in zip(tasks, (" a ", "c"), strict=True)
    ]
    found = evaluate_candidates(
        Likelihoods({}),  # type: ignore[arg-type]
        tasks,
        Label(extract=("last_line",)),
        per="token",
        correct_at=1.0,
        written=written,
    )
    summary = dict(found.summary)
    assert summary.pop("mean_perplexity") == pytest.approx(np.e)
    low, high = summary.pop("accuracy_interval")
    assert low < 0.5 < high
    assert summary == {"accuracy": 0.5, "correct": 1, "tasks": 2, "errors": 0, "outside": 0.5}


@pytest.mark.parametrize("bad", [None, [], ["a"], ["a", "a"], "ab", [1, 2]])
def test_a_task_without_candidates_is_refused(bad: object) -> None:
    with pytest.raises(UserError, match="a column 'candidates', a list of at least two different texts"):
        candidates_of(task(bad))


def test_what_cannot_be_measured_is_refused() -> None:
    with pytest.raises(UserError, match="prompt and candidate have 43 tokens"):
        best({}, ["a", "b" * 40])
    with pytest.raises(UserError, match="the likelihood of a candidate is not a number"):
        best({"a": float("nan")}, ["a", "b"])
    assert Evaluation().candidates is None
