"""The data types of the package, with shapes and units.

Array names end in the axes they have: T trained tokens, N sequences (trajectories), G groups, V vocabulary, D width,
L all tokens of a packed batch (trained or not). There is no padding and no mask: ragged things are flat, with an
index array beside them.

Everything up to `Group` is plain Python and numpy, so that recipes, rewards and reports work without torch. `Tokens`
and `PerToken` hold torch tensors and are made by policies and objectives only.
"""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, TypedDict, TypeVar

import numpy as np
from numpy.typing import NDArray

from posttrain.signals import LOGP, OLD_LOGP, Signal

if TYPE_CHECKING:
    import torch

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float32]

Status = Literal["ok", "wrong", "error"]
GIVEN = ("demonstration", "recorded")
"""Actors that are no model of this run: what they wrote came with the task, and the policy may learn from it."""
StopReason = Literal["stop", "length", "environment"]
"""``stop``: a stop token or string; ``length``: cut at the limit of tokens or turns; ``environment``: the world ended
it."""


class Message(TypedDict):
    """One chat message."""

    role: str
    content: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """A picture as a file, or as what such a file holds; `posttrain.datasets.images` decodes it where it is needed."""

    path: str = ""
    """Where the file is; empty where the picture is in memory."""
    data: bytes = field(default=b"", repr=False)
    """What a file of the picture would hold (PNG, JPEG, ...)."""
    name: str = ""
    """The path as the data has it, which is the same on every machine; it stands for the picture in its task's key."""


IMAGE = "<image>"
"""Stands in a prompt where an image of the task is, the first one for the first image."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Preference:
    """Two completions of one prompt, the first preferred."""

    chosen: str
    rejected: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Rated:
    """A completion with a rating: a reward, or 1 and 0 for a thumb up or down."""

    completion: str
    rating: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Utterance:
    """What the policy or the world says in one turn of an episode."""

    actor: Literal["policy", "environment"]
    text: str
    ended: bool = True
    """For the policy's: whether its end token follows. It does not where a stop string handed over to the world."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A problem: what is asked, and whatever is needed to judge or imitate an answer."""

    key: str
    """Stable name: the same row has the same key in every run and on every machine."""
    prompt: str | tuple[Message, ...]
    """Text to be continued as it stands, or chat messages for the model's template."""
    answer: str | None = None
    """The reference answer, where the data has one."""
    domain: str = ""
    """Category, for curricula and for results by category."""
    demonstrations: tuple[str, ...] = ()
    """Completions worth imitating."""
    episodes: tuple[tuple[Utterance, ...], ...] = ()
    """Attempts worth imitating in which policy and world take turns. What the world says before the first turn is read
    as the end of the prompt; the policy has the last word."""
    preferences: tuple[Preference, ...] = ()
    rated: tuple[Rated, ...] = ()
    images: tuple[Image, ...] = ()
    """Pictures that the prompt shows, each at an `IMAGE` of its text."""
    fields: Mapping[str, Any] = field(default_factory=dict)
    """Every other column of the row, for rewards and environments."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """What a sampler wrote after a prompt."""

    token_ids: IntArray
    """[T] sampled ids, the stop token included."""
    logp: FloatArray
    """[T] natural-log probability of each under the sampling temperature, before top-k, top-p and min-p cut it."""
    stop_reason: StopReason
    version: int
    """Number of updates that the weights had seen."""
    text: str
    """Decoded without the stop token or stop string."""
    vectors: FloatArray | None = None
    """[T, D] the vector of each, where tokens have one: see `Segment.vectors`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """Consecutive tokens that one actor wrote."""

    actor: str
    """``prompt``, ``environment``, ``demonstration``, ``recorded`` (written and rated before the run), ``draw`` (fresh
    noise on what the policy made, for it to learn from: `posttrain.datasets.chains`), or the role of the model that
    wrote it (``policy``, ...)."""
    token_ids: IntArray
    trained: bool = False
    """Whether the tokens are actions that an objective sees."""
    logp: FloatArray | None = None
    """Log-probability of each token under what sampled it (or is taken to have, for recorded text); else None."""
    version: int = 0
    turn: int = 0
    """Number of the turn, from 0; a prompt, an observation and the reply to it share one."""
    state_key: str | None = None
    """What the writer could see, for methods that compare turns in the same state."""
    reward: float = 0.0
    """Reward that the environment gave for this turn, credited to the segment's last trained token."""
    text: str = ""
    vectors: FloatArray | None = None
    """[T, D] a vector for each token, where a token is more than a symbol: the pixels of a patch of an image, the point
    that a chain (diffusion, flow, control) arrived at. None for text."""

    def __len__(self) -> int:
        """Number of tokens."""
        return len(self.token_ids)

    @property
    def learner(self) -> str:
        """The role that learns from the tokens if they are trained: their writer; what nobody wrote, and what came with
        the task, is the policy's.
        """
        return "policy" if self.actor in (*GIVEN, "draw") else self.actor


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """The judgement of one trajectory. An ``error`` says that judging failed, and is never trained on as a zero."""

    value: float
    status: Status
    answer: str | None = None
    """What was extracted from the completion and judged."""
    confidence: float | None = None
    """Probability of being right that the completion itself states, where it does."""
    explanation: str = ""
    parts: Mapping[str, "Score"] = field(default_factory=dict)
    """Scores that this one was made of, by name."""


@dataclass(frozen=True, kw_only=True)
class Fact:
    """What a rollout knows of a trajectory beyond its tokens: how an episode went, where a tree branched, ...

    A subclass is a frozen dataclass of JSON values. One that other components read is declared by the contract of a
    family, one that is only recorded by the rollout that makes it; your own rollouts declare their own.
    """

    def record(self) -> dict[str, Any]:
        """Entries of the column ``info`` in the record: the fields that are not None."""
        return {name: value for name, value in asdict(self).items() if value is not None}


F = TypeVar("F", bound=Fact)


@dataclass(frozen=True, kw_only=True)
class Trajectory:
    """One attempt at a task, from the prompt to its end."""

    task: Task
    segments: tuple[Segment, ...]
    stop_reason: StopReason
    sample: int = 0
    """Number of this attempt among the attempts at its task in this step."""
    score: Score | None = None
    parent: int | None = None
    """Sample number of the attempt that this one branched off, for trees."""
    facts: tuple[Fact, ...] = ()
    """What the rollout knows of it beyond its tokens, for rewards, advantages and the record."""
    failure: str = ""
    """Why the attempt broke off through no fault of its writer, in a world that raised an error for example; empty
    where it did not. Such an attempt is judged an ``error``, whatever it holds."""

    @cached_property
    def token_ids(self) -> IntArray:
        """[L] every token, in order."""
        return np.concatenate([s.token_ids for s in self.segments]).astype(np.int64)

    @cached_property
    def vectors(self) -> FloatArray | None:
        """[L, D] the vector of every token, zeros where it has none; None where no token has one."""
        widths = {s.vectors.shape[1] for s in self.segments if s.vectors is not None}
        if not widths:
            return None
        assert len(widths) == 1, "the vectors of a trajectory all have the width that its model takes"
        empty = (max(widths),)
        parts = [np.zeros((len(s), *empty)) if s.vectors is None else s.vectors for s in self.segments]
        return np.concatenate(parts).astype(np.float32)

    @cached_property
    def trained_positions(self) -> IntArray:
        """[T] positions in `token_ids` of the trained tokens."""
        trained = np.concatenate([np.full(len(s), s.trained) for s in self.segments])
        return np.flatnonzero(trained).astype(np.int64)

    @cached_property
    def turn_ends(self) -> IntArray:
        """[turns] places among the trained tokens of the last one of each turn, in the order of the turns."""
        turns = [np.full(len(s), s.turn, np.int64) for s in self.segments if s.trained]
        turn_T = np.concatenate([np.zeros(0, np.int64), *turns])
        return np.flatnonzero(np.diff(turn_T, append=-1)).astype(np.int64)

    @cached_property
    def behavior_logp(self) -> FloatArray:
        """[T] log-probability of each trained token when it was sampled; NaN where it was not sampled."""
        parts = [
            np.full(len(s), np.nan, np.float32) if s.logp is None else np.asarray(s.logp, np.float32)
            for s in self.segments
            if s.trained
        ]
        return np.concatenate(parts) if parts else np.zeros(0, np.float32)

    @property
    def completion(self) -> str:
        """Text of everything after the first prompt."""
        return "".join(s.text for s in self.segments if s.actor != "prompt")

    @property
    def completion_ids(self) -> IntArray:
        """Ids of everything after the first prompt."""
        parts = [s.token_ids for s in self.segments if s.actor != "prompt"]
        return np.concatenate(parts).astype(np.int64) if parts else np.zeros(0, np.int64)

    @property
    def num_trained(self) -> int:
        """Number of trained tokens."""
        return len(self.trained_positions)

    @property
    def learners(self) -> frozenset[str]:
        """The roles that learn from it: the policy, if nobody else does."""
        return frozenset(s.learner for s in self.segments if s.trained) or frozenset({"policy"})

    @property
    def demonstrated(self) -> bool:
        """Whether a demonstration is a part of it, or all."""
        return any(s.actor == "demonstration" for s in self.segments)

    @property
    def given(self) -> bool:
        """Whether any of it came with the task; such a trajectory is no attempt of the policy's own."""
        return any(s.actor in GIVEN for s in self.segments)

    @property
    def solved(self) -> bool:
        """Whether it was judged right."""
        return self.score is not None and self.score.status == "ok"

    def fact(self, kind: type[F]) -> F | None:
        """The fact of a type; None where the rollout does not give one."""
        return next((fact for fact in self.facts if isinstance(fact, kind)), None)

    def scored(self, score: Score) -> "Trajectory":
        """The same attempt with a judgement."""
        return replace(self, score=score)


@dataclass(frozen=True, kw_only=True)
class Group:
    """Trajectories that are compared with one another; usually the attempts at one task."""

    trajectories: tuple[Trajectory, ...]
    key: str = ""
    pool: tuple[float, ...] = ()
    """Values of all scores that these attempts were chosen from, where others were left out on purpose; else empty."""

    def __iter__(self) -> Iterator[Trajectory]:
        """Iterate over the trajectories."""
        return iter(self.trajectories)

    def __len__(self) -> int:
        """Number of trajectories."""
        return len(self.trajectories)

    @property
    def solved(self) -> float:
        """Share of the attempts that were judged right, in [0, 1]; what came with the task is not counted."""
        own = [t.solved for t in self.trajectories if not t.given]
        return sum(own) / max(len(own), 1)

    @property
    def rewards(self) -> NDArray[np.float64]:
        """[N] values of the scores; every trajectory must have been scored without error."""
        return np.array([value_of(t) for t in self.trajectories], np.float64)


def value_of(trajectory: Trajectory) -> float:
    """The value of a score that must be there and sound."""
    score = trajectory.score
    assert score is not None and score.status != "error", "unscored and failed trajectories never get this far"
    return score.value


@dataclass(frozen=True, kw_only=True)
class Batch:
    """The groups of one step with what is known of each trained token; all that an advantage may look at."""

    groups: tuple[Group, ...]
    signals: Mapping[Signal, tuple[FloatArray, ...]] = field(default_factory=dict)
    """Columns: of each, for each trajectory in order, [T] numbers, one a trained token."""
    token_rewards: tuple[FloatArray, ...] = ()
    """For each trajectory, [T] rewards: turn rewards, penalties taken from the reward, the score at the last token."""
    progress: float = 0.0
    """Share of the stage that is done, in [0, 1]."""

    @cached_property
    def trajectories(self) -> tuple[Trajectory, ...]:
        """[N] every trajectory, group by group."""
        return tuple(t for g in self.groups for t in g)

    @cached_property
    def group_N(self) -> IntArray:
        """[N] index of each trajectory's group."""
        return np.repeat(np.arange(len(self.groups)), [len(g) for g in self.groups]).astype(np.int64)

    @cached_property
    def return_N(self) -> NDArray[np.float64]:
        """[N] undiscounted sum of each trajectory's token rewards."""
        return np.array([r.sum(dtype=np.float64) for r in self.token_rewards], np.float64)


@dataclass(frozen=True, kw_only=True)
class Credit:
    """What an advantage gives: per trajectory, per trained token."""

    advantages: tuple[FloatArray, ...]
    value_targets: tuple[FloatArray, ...] = ()
    """What a critic should have predicted; empty for methods without one."""
    metrics: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Tokens:
    """What an objective sees: flat tensors over trained tokens only; ``tokens[signal]`` is what it asked for."""

    logp_T: "torch.Tensor"
    """Log-probability under the weights being trained (differentiable)."""
    behavior_logp_T: "torch.Tensor"
    """When it was sampled, by the sampler; NaN for tokens nobody sampled (demonstrations)."""
    old_logp_T: "torch.Tensor"
    """Under the weights at the start of this step's updates; for tokens that nobody sampled too."""
    advantage_T: "torch.Tensor"
    sequence_T: "torch.Tensor"
    """Index into the sequences of this micro-batch, 0 .. N-1."""
    group_N: "torch.Tensor"
    turn_T: "torch.Tensor"
    length_N: "torch.Tensor"
    """Number of trained tokens of each sequence."""
    reward_N: "torch.Tensor"
    solved_N: "torch.Tensor"
    """1 where the attempt was judged right, else 0."""
    group_solved_N: "torch.Tensor"
    """Share of the attempts of its group, wherever they are packed, that were judged right."""
    progress: float = 0.0
    value_target_T: "torch.Tensor | None" = None
    signals: "Mapping[Signal, torch.Tensor]" = field(default_factory=dict)
    """[T] each, velocities [T, D]: what was asked for beside the log-probabilities. Those of the forward pass that
    trains are differentiable."""

    def __getitem__(self, signal: Signal) -> "torch.Tensor":
        """A signal that was asked for. Raises `KeyError` for one that is not among the needs of who reads it."""
        always = {LOGP: self.logp_T, OLD_LOGP: self.old_logp_T}
        return always[signal] if signal in always else self.signals[signal]

    @property
    def demonstrated_T(self) -> "torch.Tensor":
        """Whether nobody sampled the token: it stands in a demonstration."""
        return self.behavior_logp_T.isnan()

    def only(self, kept_T: "torch.Tensor") -> "Tokens":
        """The same sequences, of each only the tokens that are kept (bool [T])."""
        whole_T = {f.name: getattr(self, f.name) for f in fields(self) if f.name.endswith("_T")}
        cut_T: dict[str, Any] = {name: None if x_T is None else x_T[kept_T] for name, x_T in whole_T.items()}
        signals = {signal: x_T[kept_T] for signal, x_T in self.signals.items()}
        length_N = self.length_N.new_zeros(len(self.length_N)).scatter_add(0, self.sequence_T, kept_T.long())
        return replace(self, **cut_T, signals=signals, length_N=length_N)

    def sequence_sum(self, x_T: "torch.Tensor") -> "torch.Tensor":
        """[N] sum of a per-token quantity over each sequence."""
        return x_T.new_zeros(len(self.length_N)).scatter_add(0, self.sequence_T, x_T)

    def last(self, x_T: "torch.Tensor") -> "torch.Tensor":
        """[N] a per-token quantity at the last token of each sequence; none may be empty."""
        return x_T[self.length_N.cumsum(0) - 1]

    def sequence_mean(self, x_T: "torch.Tensor") -> "torch.Tensor":
        """[N] mean of a per-token quantity over each sequence (0 for an empty one)."""
        return self.sequence_sum(x_T) / self.length_N.clamp(min=1)


@dataclass(frozen=True, kw_only=True)
class PerToken:
    """A loss for each trained token, and metrics that were truly computed, averaged by the learner.

    Each metric has one number for each token or sequence that it is about (all [T], all [N], or some of them), or for
    each comparison where sequences are compared.
    """

    loss_T: "torch.Tensor"
    metrics: "Mapping[str, torch.Tensor]" = field(default_factory=dict)
