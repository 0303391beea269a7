"""Backtracks: counts by hand, with a model that answers with the demonstration."""

from typing import Any

import numpy as np

from posttrain.components.diagnostics import Subject
from posttrain.components.diagnostics.backtracks import ROWS, Backtracks
from posttrain.components.rewards.countdown import Countdown as CountdownReward
from posttrain.components.tasks.backtracked import Backtracked
from posttrain.components.tasks.countdown import Countdown
from posttrain.engines import Sampling
from posttrain.types import Completion
from tests.builders import ScriptedSampler


class Writer(ScriptedSampler):
    """Answers with the text of each task."""

    def __init__(self, texts: dict[str, str], key: str = "") -> None:
        super().__init__("policy")
        self.texts, self.own = texts, key

    def bind(self, *key: int | str) -> "Writer":
        return Writer(self.texts, str(key[-1]))

    async def sample(
        self, token_ids: np.ndarray, n: int, sampling: Sampling, vectors: np.ndarray | None = None
    ) -> list[Completion]:
        text = self.texts[self.own]
        ids = np.array([*text.encode()], np.int64)
        logp = np.zeros(len(ids), np.float32)
        return [Completion(token_ids=ids, logp=logp, stop_reason="stop", version=0, text=text)] * n


def examine(texts: dict[str, str], tasks: Backtracked, n: int) -> Any:
    unused: Any = None
    serve: Any = lambda policy: Writer(texts)  # noqa: E731
    subject = Subject(name="m", load=lambda: unused, serve=serve)
    return Backtracks(tasks=tasks, verifier=CountdownReward(), n=n).examine(subject)


def test_the_counter_recovers_k() -> None:
    for k in range(4):
        tasks = Backtracked(tasks=Countdown(size=6), dead_ends=k)
        found = examine({task.key: task.demonstrations[0] for task in tasks.load()}, tasks, 2).values
        assert found["dead_ends"]["mean"] == k and found["accuracy"] == 1.0
        assert found["distinct"] == (1.0 if k else None)
        assert found["demonstrations"] == {str(k): 6} and found["answers"] == 12
    assert ROWS == (28,)


def test_by_hand() -> None:
    """One answer with no dead end, one with six of which all are the same, one correct with one."""
    tasks = Backtracked(tasks=Countdown(size=3), dead_ends=1)
    first, second, third = tasks.load()
    again = "1+2=3\nWait, 3 is not 4. Restart.\n"
    texts = {first.key: "#### 1", second.key: again * 6 + "#### 1", third.key: third.demonstrations[0]}
    finding = examine(texts, tasks, 1)
    assert finding.values["dead_ends"]["mean"] == 7 / 3
    assert finding.values["distinct"] == 2 / 7
    assert {count: (own["answers"], own["accuracy"]) for count, own in finding.values["by_count"].items()} == {
        "0": (1, 0.0),
        "1": (1, 1.0),
        "5": (1, 0.0),
    }
    assert finding.lines[-1].startswith("5 or more dead ends: 1 answers, 0.0%")
