"""Forced answers after each episode of a thought, and the regret by hand."""

from typing import Any

import numpy as np
import pytest

from posttrain.components.diagnostics import Subject
from posttrain.components.diagnostics.thought_regret import ThoughtRegret
from posttrain.components.rewards.match import Match
from posttrain.components.tasks.arithmetic import Arithmetic
from posttrain.engines import Sampling
from posttrain.errors import UserError
from posttrain.types import Completion
from tests.builders import ScriptedSampler

TASKS = Arithmetic(size=1, terms=(3, 3))


class Thinker(ScriptedSampler):
    """Three steps, the second of which is idle; a forced answer is right after the last step only."""

    answer = ""

    def bind(self, *key: int | str) -> "Thinker":
        found = Thinker(*self.key, *key, log=self.completions)
        found.answer = self.answer
        return found

    async def sample(
        self, token_ids: np.ndarray, n: int, sampling: Sampling, vectors: np.ndarray | None = None
    ) -> list[Completion]:
        text = bytes(int(i) for i in token_ids if i > 1).decode()
        written = " a1; b2; c3" if not text.endswith("####") else f" {self.answer if 'c3' in text else '?'}"
        ids = np.array(list(written.encode()), np.int64)
        logp = np.full(len(ids), -1.0, np.float32)
        return [Completion(token_ids=ids, logp=logp, stop_reason="stop", text=self.decode(ids), version=3)] * n


def thinker(answer: str) -> Subject:
    server: Any = Thinker("policy")
    server.answer = answer
    return Subject(name="model", load=lambda: server, serve=lambda policy: server)


def test_by_hand() -> None:
    """J is 0 at 2, 6 and 10 tokens, and 1 after the last step; what is idle is two of three episodes.

    The trace has 11 tokens; with an answer of m tokens the last point is at 11 + m.
    """
    [task] = TASKS.load()
    answer = str(task.answer)
    last = 11 + 1 + len(answer)
    measure = ThoughtRegret(tasks=TASKS, reward=Match(), split="steps", end="\n####", limit=20, probes=2)
    [row] = measure.examine(thinker(answer)).values["models"].values()
    before = 8 + 2
    assert row["regret"] == pytest.approx(1 - ((last - before) / 2 + 20 - last) / 20)
    assert (row["success"], row["at_once"], row["tokens"], row["episodes"]) == (1.0, 0.0, 11.0, 3.0)
    assert row["without_progress"] == pytest.approx(2 / 3)
    never = measure.examine(thinker("?")).values["models"]["model"]
    assert never["regret"] == 1.0 and never["without_progress"] == 1.0


def test_what_cannot_be_scored_is_refused() -> None:
    with pytest.raises(UserError, match="requires the role"):
        from posttrain.components.rewards.judge import Judge

        ThoughtRegret(tasks=TASKS, reward=Judge()).examine(thinker("1"))
