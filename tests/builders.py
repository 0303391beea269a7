"""Small valid objects for tests: tasks, trajectories, batches, tokens, a scripted sampler, a numerical gradient.

batch([[1, 0], [1, 1, 0]])                     two groups with these scores, two tokens a trajectory
tokens(logp=[[-1.0, -2.0], [-0.5]], advantage=[[1.0, 1.0], [-1.0]])
random_batch(seed), random_tokens(seed)        ragged, several groups, every signal that is asked for
"""

import hashlib
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from posttrain.engines import Sampling
from posttrain.grading.isolated import pack_trajectory, unpack_trajectory
from posttrain.signals import (
    ENTROPY,
    LOGIT,
    NOISE,
    OLD_ENTROPY,
    OLD_LOGP,
    OLD_VALUE,
    VALUE,
    VELOCITY,
    Signal,
    logp_of,
)
from posttrain.types import Batch, Completion, Group, Message, Score, Segment, Task, Tokens, Trajectory

Rows = Sequence[Sequence[float]]


def task(key: str = "task", prompt: str = "What is 2 + 2?", answer: str | None = "4") -> Task:
    return Task(key=key, prompt=prompt, answer=answer)


def score(value: float) -> Score:
    return Score(value=value, status="ok" if value >= 1 else "wrong")


def trajectory(
    length: int = 2,
    *,
    reward: float = 0.0,
    logp: Sequence[float] | None = None,
    of: Task | None = None,
    sample: int = 0,
) -> Trajectory:
    """A prompt of three tokens and `length` tokens of the policy; scored."""
    logp_T = np.full(length, -1.0, np.float32) if logp is None else np.asarray(logp, np.float32)
    segments = (
        Segment(actor="prompt", token_ids=np.arange(3), text="abc"),
        Segment(actor="policy", token_ids=np.arange(len(logp_T)) + 10, trained=True, logp=logp_T, text="x"),
    )
    return Trajectory(task=of or task(), segments=segments, stop_reason="stop", sample=sample, score=score(reward))


def group(rewards: Sequence[float], *, key: str = "task", length: int = 2) -> Group:
    """Rollouts at one task with these scores."""
    of = task(key)
    return Group(
        key=key,
        trajectories=tuple(trajectory(length, reward=r, of=of, sample=i) for i, r in enumerate(rewards)),
    )


def batch(
    rewards: Rows, *, token_rewards: Rows | None = None, length: int = 2, signals: Mapping[Signal, Rows] | None = None
) -> Batch:
    """One group per row of scores. The score is the reward of the last token, unless token rewards are given: a row a
    trajectory, which then decides its length.
    """
    given = token_rewards or [[0.0] * (length - 1) + [reward] for row in rewards for reward in row]
    lengths = map(len, given)
    groups = []
    for g, row in enumerate(rewards):
        of = task(f"task-{g}")
        attempts = [trajectory(next(lengths), reward=r, of=of, sample=i) for i, r in enumerate(row)]
        groups.append(Group(key=of.key, trajectories=tuple(attempts)))
    return Batch(
        groups=tuple(groups),
        token_rewards=tuple(np.asarray(row, np.float32) for row in given),
        signals={signal: tuple(np.asarray(r, np.float32) for r in rows) for signal, rows in (signals or {}).items()},
    )


def random_batch(
    seed: int = 0,
    *,
    sizes: Sequence[int] = (4, 3, 1, 2),
    needs: Collection[Signal] = (),
    rewards: Callable[[np.random.Generator], float] = lambda rng: float(rng.integers(2)),
) -> Batch:
    """Groups of the given sizes, rollouts of one to six tokens in one or two turns, small rewards at every token."""
    rng = np.random.default_rng(seed)
    groups, token_rewards = [], []
    for g, size in enumerate(sizes):
        attempts = [_random_trajectory(rng, task(f"task-{g}"), i, rewards(rng)) for i in range(size)]
        groups.append(Group(key=f"task-{g}", trajectories=tuple(attempts)))
        for attempt in attempts:
            assert attempt.score is not None
            reward_T = rng.normal(scale=0.01, size=attempt.num_trained).astype(np.float32)
            reward_T[-1] += attempt.score.value
            token_rewards.append(reward_T)
    signals = {
        need: tuple(rng.normal(loc=-1.0, size=len(r)).astype(np.float32) for r in token_rewards)
        for need in sorted(needs)
    }
    return Batch(groups=tuple(groups), token_rewards=tuple(token_rewards), signals=signals, progress=0.5)


def _random_trajectory(rng: np.random.Generator, of: Task, sample: int, reward: float) -> Trajectory:
    segments = [Segment(actor="prompt", token_ids=rng.integers(3, 100, 3), text="prompt")]
    for turn in range(int(rng.integers(1, 3))):
        length = int(rng.integers(1, 4))
        if turn:
            segments.append(Segment(actor="environment", token_ids=rng.integers(3, 100, 2), turn=turn, text="seen"))
        segments.append(
            Segment(
                actor="policy",
                token_ids=rng.integers(3, 100, length),
                trained=True,
                logp=-rng.exponential(size=length).astype(np.float32),
                turn=turn,
                state_key=f"state-{turn}",
                text="said",
            )
        )
    return Trajectory(task=of, segments=tuple(segments), stop_reason="stop", sample=sample, score=score(reward))


def tokens(
    logp: Rows,
    *,
    advantage: Rows | None = None,
    old_logp: Rows | None = None,
    behavior_logp: Rows | None = None,
    reference_logp: Mapping[str, Rows] | None = None,
    entropy: Rows | None = None,
    logit: Rows | None = None,
    value: Rows | None = None,
    old_value: Rows | None = None,
    value_target: Rows | None = None,
    noise: Rows | None = None,
    group_N: Sequence[int] | None = None,
    reward_N: Sequence[float] | None = None,
    dtype: torch.dtype = torch.float64,
) -> Tokens:
    """Tokens from rows, one a sequence. `logp`, `entropy`, `logit` and `value` are leaves that take a gradient.

    A reward of at least 1 is a solved task, as in `score`.
    """
    lengths = [len(row) for row in logp]

    def flat(rows: Rows) -> Tensor:
        assert [len(row) for row in rows] == lengths, "every signal has one number a token"
        return torch.tensor([x for row in rows for x in row], dtype=dtype)

    def column(rows: Rows | None) -> Tensor | None:
        return None if rows is None else flat(rows)

    def leaf(rows: Rows | None) -> Tensor | None:
        return None if rows is None else flat(rows).requires_grad_()

    known = {
        **{logp_of(role): column(rows) for role, rows in (reference_logp or {}).items()},
        ENTROPY: leaf(entropy),
        LOGIT: leaf(logit),
        VALUE: leaf(value),
        OLD_VALUE: column(old_value),
        NOISE: column(noise),
    }
    logp_T = flat(logp)
    groups = torch.tensor(group_N if group_N is not None else [0] * len(lengths))
    rewards = torch.tensor(reward_N if reward_N is not None else [0.0] * len(lengths), dtype=dtype)
    solved = (rewards >= 1).to(dtype)
    return Tokens(
        logp_T=logp_T.clone().requires_grad_(),
        old_logp_T=flat(old_logp) if old_logp else logp_T.clone(),
        behavior_logp_T=flat(behavior_logp or old_logp or logp),
        advantage_T=flat(advantage) if advantage else torch.ones_like(logp_T),
        value_target_T=None if value_target is None else flat(value_target),
        signals={signal: x_T for signal, x_T in known.items() if x_T is not None},
        sequence_T=torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths)),
        turn_T=torch.zeros(sum(lengths), dtype=torch.int64),
        length_N=torch.tensor(lengths),
        group_N=groups,
        reward_N=rewards,
        solved_N=solved,
        group_solved_N=torch.stack([solved[groups == g].mean() for g in groups]),
    )


def random_tokens(
    seed: int = 0,
    *,
    lengths: Sequence[int] = (3, 1, 4, 2, 5, 2),
    needs: Collection[Signal] = (),
    gap: float = 0.3,
    advantage_by: str = "token",
    dtype: torch.dtype = torch.float64,
) -> Tokens:
    """Tokens of three groups. Other models' log-probabilities are about `gap` away from the policy's; 0 is on policy.

    Advantages differ by ``token`` or by ``sequence``. Of the costly signals, only those in `needs` are there.
    """
    rng = np.random.default_rng(seed)

    def draw(sample: Callable[[int], np.ndarray]) -> list[list[float]]:
        return [sample(length).tolist() for length in lengths]

    logp = draw(lambda n: -rng.exponential(size=n) - 0.1)

    def nearby() -> list[list[float]]:
        return [[x + gap * rng.normal() for x in row] for row in logp]

    wide = advantage_by == "token"
    roles = sorted(need.of for need in needs if need.name == "logp" and need.of)
    costly: dict[str, list[list[float]]] = {}
    if ENTROPY in needs:
        costly["entropy"] = draw(lambda n: rng.exponential(size=n))
    if LOGIT in needs:
        costly["logit"] = draw(lambda n: rng.normal(size=n))
    if VALUE in needs:
        drawn = {name: draw(lambda n: rng.normal(size=n)) for name in ("value", "old_value", "value_target")}
        costly |= {name: rows for name, rows in drawn.items() if name != "old_value" or OLD_VALUE in needs}
    if NOISE in needs:
        costly["noise"] = draw(lambda n: rng.uniform(0.1, 1.0, size=n))
    num_groups = min(3, len(lengths))
    made = tokens(
        logp,
        old_logp=nearby(),
        behavior_logp=nearby(),
        advantage=draw(lambda n: rng.normal(size=n) if wide else np.full(n, rng.normal())),
        reference_logp={role: nearby() for role in roles},
        group_N=[i % num_groups for i in range(len(lengths))],
        reward_N=rng.integers(2, size=len(lengths)).tolist(),
        dtype=dtype,
        **costly,
    )
    if OLD_ENTROPY in needs:
        made = having(made, {OLD_ENTROPY: torch.tensor(rng.exponential(size=len(made.logp_T)), dtype=dtype)})
    return _with_divergences(_with_embeddings(_with_velocities(made, needs, rng), needs, rng), needs, rng)


def _with_embeddings(these: Tokens, needs: Collection[Signal], rng: np.random.Generator) -> Tokens:
    """With embeddings of four numbers, their scores and those of demonstrations, where they are needed."""

    def draw(*shape: int) -> Tensor:
        return torch.tensor(rng.normal(size=shape), dtype=these.logp_T.dtype)

    size, count = len(these.logp_T), len(these.length_N)
    shapes = {"embedding": (size, 4), "score": (size,), "shown": (count, 4), "shown_only": (count, 4)}
    shapes |= dict.fromkeys(("label_logp", "latent_logp", "latent_error"), (size,))
    known: dict[Signal, Tensor] = {}
    for need in sorted(need for need in needs if not need.of):
        if need.name in shapes:
            drawn = draw(*shapes[need.name])
            known[need] = drawn[these.sequence_T] if need.shows else drawn.requires_grad_(not need.old)
        elif need.name == "in_shown":
            known[need] = (draw(size) > 0).to(these.logp_T.dtype)
    return having(these, known)


def _with_velocities(these: Tokens, needs: Collection[Signal], rng: np.random.Generator) -> Tokens:
    """With velocities of two numbers, the flow's own and those of references, where they are needed."""

    def draw() -> Tensor:
        return torch.tensor(rng.normal(size=(len(these.logp_T), 2)), dtype=these.logp_T.dtype)

    own = {VELOCITY: draw().requires_grad_()} if VELOCITY in needs else {}
    return having(these, own | {need: draw() for need in sorted(needs) if need.name == "velocity" and need.of})


def _with_divergences(these: Tokens, needs: Collection[Signal], rng: np.random.Generator) -> Tokens:
    """With differentiable divergences from references, at least 0, where they are needed."""
    size, dtype = len(these.logp_T), these.logp_T.dtype
    wanted = [need for need in sorted(needs) if need.compares]
    return having(
        these, {need: torch.tensor(rng.exponential(size=size), dtype=dtype).requires_grad_() for need in wanted}
    )


def having(these: Tokens, known: Mapping[Signal, Tensor]) -> Tokens:
    """The same tokens with these signals."""
    return replace(these, signals={**these.signals, **known})


def without(these: Tokens, need: Signal) -> Tokens:
    """The same tokens without one costly signal."""
    if need == OLD_LOGP:
        return replace(these, old_logp_T=None)  # type: ignore[arg-type]
    return replace(these, signals={signal: x_T for signal, x_T in these.signals.items() if signal != need})


def reordered(these: Tokens, order: Sequence[int]) -> tuple[Tokens, Tensor]:
    """The same sequences in another order, and where each of the new tokens was before."""
    positions = torch.cat([torch.nonzero(these.sequence_T == i).flatten() for i in order])
    lengths = these.length_N[list(order)]
    changed: dict[str, object] = {
        "sequence_T": torch.repeat_interleave(torch.arange(len(order)), lengths),
        "signals": {signal: x_T[positions] for signal, x_T in these.signals.items()},
    }
    for field in fields(Tokens):
        value = getattr(these, field.name)
        if field.name not in changed and isinstance(value, Tensor):
            changed[field.name] = value[positions] if field.name.endswith("_T") else value[list(order)]
    return replace(these, **changed), positions  # type: ignore[arg-type]


def gradients(loss: Tensor, these: Tokens) -> dict[str | Signal, Tensor]:
    """Gradient of a loss with respect to every signal that the model gives; 0 where the loss does not depend on it."""
    all_of_them = {f.name: getattr(these, f.name) for f in fields(Tokens)} | {**these.signals}
    leaves = {n: x for n, x in all_of_them.items() if isinstance(x, Tensor) and x.requires_grad}
    if not loss.requires_grad:
        return {name: torch.zeros_like(leaf) for name, leaf in leaves.items()}
    found = torch.autograd.grad(loss, list(leaves.values()), allow_unused=True)
    return {n: torch.zeros_like(x) if g is None else g for (n, x), g in zip(leaves.items(), found, strict=True)}


def numerical_gradient(loss: Callable[[Tensor], Tensor], at: Tensor, step: float = 1e-6) -> Tensor:
    """Central differences of a scalar function of a float64 vector."""
    assert at.dtype == torch.float64, "differences of float32 are noise"
    at = at.detach()
    result = torch.zeros_like(at)
    for i in range(len(at)):
        shift = torch.zeros_like(at)
        shift[i] = step
        result[i] = (loss(at + shift) - loss(at - shift)).item() / (2 * step)
    return result


class ScriptedSampler:
    """A model whose answers are a function of (key, number of the completion, prompt), and which keeps a log.

    Its text is lossy on purpose (upper case comes back as lower case), so that ids made from text again show.
    """

    context = 4096
    outputs = 3
    """Numbers of its reward head."""

    def __init__(self, *key: int | str, version: int = 3, log: list[Completion] | None = None) -> None:
        self.key, self.version = key, version
        self.completions: list[Completion] = [] if log is None else log
        """What it and those that are bound to it have written."""
        self.asked = self.drawn = 0
        self.signals: set[str] = set()
        """Names of the signals that it was asked for; shared with those that are bound to it."""
        self.given: dict[bytes, np.ndarray] = {}
        """Log-probabilities that it gave, by the bytes of the ids."""

    def bind(self, *key: int | str) -> "ScriptedSampler":
        bound = ScriptedSampler(*self.key, *key, version=self.version, log=self.completions)
        bound.signals = self.signals
        return bound

    def prompt(self, task: Task) -> Segment:
        ids = self.encode(task.prompt)
        text = task.prompt if isinstance(task.prompt, str) else self.decode(ids)
        return Segment(actor="prompt", token_ids=ids, text=text)

    def encode(self, prompt: str | Sequence[Message]) -> np.ndarray:
        text = prompt if isinstance(prompt, str) else "".join(f"{m['role']}: {m['content']}\n" for m in prompt)
        return np.array([1, *text.encode()], np.int64)

    def encode_completion(self, prompt: str | Sequence[Message], text: str) -> np.ndarray:
        return np.array([*text.encode(), 0], np.int64)

    def encode_reply(self, prompt: str | Sequence[Message], turn: np.ndarray, reply: Message) -> np.ndarray:
        text = reply["content"] if isinstance(prompt, str) else f"{reply['role']}: {reply['content']}\n"
        return np.array([*text.encode()], np.int64)

    def tokenizer_file(self) -> tuple[str, frozenset[int], int]:
        return "bytes", frozenset({0}), 256

    def token_bytes(self, token_id: int) -> bytes:
        return bytes([token_id])

    async def watched(self, token_ids: np.ndarray, n: int, sampling: Sampling, watch: object) -> list[Completion]:
        """Without regard to masks."""
        return await self.sample(token_ids, n, sampling)

    def uniform(self) -> float:
        self.drawn += 1
        return float(self._rng("uniform", self.drawn).random())

    def decode(self, token_ids: np.ndarray) -> str:
        return bytes(int(i) for i in token_ids if i > 1).decode("ascii", "replace").lower()

    def _rng(self, *more: object) -> np.random.Generator:
        digest = hashlib.sha256(repr((self.key, more)).encode()).digest()
        return np.random.default_rng(int.from_bytes(digest[:8], "big"))

    async def sample(
        self, token_ids: np.ndarray, n: int, sampling: Sampling, vectors: np.ndarray | None = None
    ) -> list[Completion]:
        written = []
        for _ in range(n):
            rng = self._rng(self.asked, token_ids.tolist())
            self.asked += 1
            cut = bool(rng.random() < 0.3)
            length = sampling.max_tokens if cut else int(rng.integers(1, min(8, sampling.max_tokens) + 1))
            ids = rng.integers(65, 91, length)
            written.append(
                Completion(
                    token_ids=ids,
                    logp=-rng.exponential(size=length).astype(np.float32),
                    stop_reason="length" if cut else "stop",
                    version=self.version,
                    text=self.decode(ids),
                )
            )
            self.completions.append(written[-1])
        return written

    async def write(self, prompt: str | Sequence[Message], n: int, sampling: Sampling) -> list[str]:
        return [completion.text for completion in await self.sample(self.encode(prompt), n, sampling)]

    async def logp(
        self, token_ids: np.ndarray, *, temperature: float = 1.0, vectors: np.ndarray | None = None
    ) -> np.ndarray:
        self.signals.add("logp")
        rng = self._rng("logp", token_ids.tolist(), temperature)
        logp = -rng.exponential(size=len(token_ids) - 1).astype(np.float32)
        self.given[token_ids.tobytes()] = logp
        return logp

    attends = True

    async def attention(
        self, token_ids: np.ndarray, *, share: float = 0.5, vectors: np.ndarray | None = None
    ) -> np.ndarray:
        return self._rng("attention", token_ids.tolist(), share).dirichlet(np.ones(len(token_ids))).astype(np.float32)

    async def score(self, token_ids: np.ndarray, *, vectors: np.ndarray | None = None) -> float:
        self.signals.add("score")
        return float(self._rng("score", token_ids.tolist()).normal())

    async def scores(self, token_ids: np.ndarray, *, vectors: np.ndarray | None = None) -> np.ndarray:
        self.signals.add("scores")
        return self._rng("scores", token_ids.tolist()).normal(size=self.outputs).astype(np.float32)


def info_of(trajectory: Trajectory) -> dict[str, Any]:
    """The facts of a trajectory as the record has them."""
    return json.loads(json.dumps({name: v for fact in trajectory.facts for name, v in fact.record().items()}))


def assert_facts_are_plain(trajectory: Trajectory) -> None:
    """Facts share no name in the record, and come back the same from the process of a grader."""
    names = [name for fact in trajectory.facts for name in fact.record()]
    assert len(names) == len(set(names))
    packed = pack_trajectory(trajectory, ids=False)
    sent = {**packed, "facts": json.loads(json.dumps(packed["facts"]))}
    assert unpack_trajectory(sent).facts == trajectory.facts
