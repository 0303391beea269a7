"""A writer whose continuations are given, state by state, and a value model that looks values up."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from posttrain.engines import Sampling
from posttrain.types import Completion, Group, Message, Score, Segment, Task

TASK = Task(key="t", prompt="P:")


class Lines:
    """Tokens are bytes and 0 is the end. Each state has its continuations, taken in order; `values` are of texts."""

    context = 64

    def __init__(self, script: Mapping[str, Sequence[str]], values: Mapping[str, float] | None = None) -> None:
        self.script, self.values = script, values or {}
        self.asked: list[str] = []
        self.scored: list[str] = []
        self.draws: list[float] = []

    def prompt(self, task: Task) -> Segment:
        assert isinstance(task.prompt, str)
        return Segment(actor="prompt", token_ids=self.encode(task.prompt), text=task.prompt)

    def encode(self, prompt: str | Sequence[Message]) -> np.ndarray:
        assert isinstance(prompt, str)
        return np.array(list(prompt.encode()), np.int64)

    def encode_completion(self, prompt: str | Sequence[Message], text: str) -> np.ndarray:
        raise AssertionError("token ids are never made from text again")

    def decode(self, token_ids: np.ndarray) -> str:
        return bytes(int(i) for i in token_ids if i).decode(errors="replace")

    def uniform(self) -> float:
        self.draws.append(0.0)
        return 0.0

    async def sample(
        self, token_ids: np.ndarray, n: int, sampling: Sampling, vectors: np.ndarray | None = None
    ) -> list[Completion]:
        state = self.decode(token_ids)
        taken = self.asked.count(state)
        self.asked += [state] * n
        texts = self.script[state]
        return [self._write(state, texts[(taken + i) % len(texts)], sampling.max_tokens) for i in range(n)]

    def _write(self, state: str, text: str, most: int) -> Completion:
        ids = [*text.encode(), 0][:most]
        return Completion(
            token_ids=np.array(ids, np.int64),
            logp=-np.arange(1.0, len(ids) + 1, dtype=np.float32) - len(state),
            stop_reason="stop" if ids[-1] == 0 else "length",
            version=3,
            text=self.decode(np.array(ids)),
        )

    async def logp(self, token_ids: np.ndarray, *, temperature: float = 1.0) -> np.ndarray:
        raise AssertionError("nobody asks")

    async def score(self, token_ids: np.ndarray) -> float:
        text = self.decode(token_ids).removeprefix("P:")
        self.scored.append(text)
        return self.values[text]


class Scorer:
    """Rewards by text; a text without one fails to be scored."""

    def __init__(self, rewards: Mapping[str, float]) -> None:
        self.rewards = rewards
        self.graded: list[str] = []

    async def __call__(self, group: Group) -> Group:
        self.graded += [t.completion for t in group]
        return replace(group, trajectories=tuple(t.scored(self._score(t.completion)) for t in group))

    def _score(self, text: str) -> Score:
        value = self.rewards.get(text)
        if value is None:
            return Score(value=float("nan"), status="error", explanation="not known")
        return Score(value=value, status="ok" if value >= 1 else "wrong")


async def never(group: Group) -> Group:
    raise AssertionError("a search with a value model asks no reward")
