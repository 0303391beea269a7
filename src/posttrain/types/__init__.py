"""The data types of the package, with shapes and units.

Array names end in the axes they have: T trained tokens, N sequences (trajectories), G groups, V vocabulary, D width,
L all tokens of a packed batch (trained or not). Ragged arrays are flat, with an index array: no padding, no mask.

Everything up to `Group` is plain Python and numpy, so that recipes, rewards and reports work without torch. `Tokens`
and `PerToken` hold torch tensors and are made by policies and objectives only.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, TypedDict, TypeVar

import numpy as np
from numpy.typing import NDArray

from posttrain.signals import LOGP, OLD_LOGP, Signal
from posttrain.types.preferences import Preference as Preference

if TYPE_CHECKING:
    import torch

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float32]
Array = NDArray[Any]

Status = Literal["ok", "wrong", "error"]
GIVEN = ("demonstration", "recorded")
"""Actors whose text comes with the task, not from a model of this run; the policy may learn from it."""
StopReason = Literal["stop", "length", "environment"]
"""``stop``: a stop token or string; ``length``: cut at the limit of tokens or turns; ``environment``: ended by the
environment."""


class Message(TypedDict):
    """One chat message."""

    role: str
    content: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Image:
    """An image: the path of a file, or its content. `posttrain.datasets.images` decodes it."""

    path: str = ""
    """Path of the file; empty for an image in memory."""
    data: bytes = field(default=b"", repr=False)
    """Content of the file (PNG, JPEG, ...)."""
    name: str = ""
    """The path in the data, the same on every machine; part of the task's key."""


IMAGE = "<image>"
"""Marks the place of an image in a prompt, the first mark for the first image."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rated:
    """A completion with a rating: a reward, or 1 and 0 for a thumb up or down."""

    completion: str
    rating: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Utterance:
    """The text of the policy or the environment in one turn of an episode."""

    actor: Literal["policy", "environment"]
    text: str
    ended: bool = True
    """For the policy: whether its end token follows. It does not where a stop string ended the turn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """A problem: the prompt, and what is needed to score or imitate an answer."""

    key: str
    """Stable name: the same row has the same key in every run and on every machine."""
    prompt: str | tuple[Message, ...]
    """Text to be continued as is, or chat messages for the model's template."""
    answer: str | None = None
    """The reference answer, where the data has one."""
    domain: str = ""
    """Category, for curricula and for results by category."""
    demonstrations: tuple[str, ...] = ()
    """Completions worth imitating."""
    episodes: tuple[tuple[Utterance, ...], ...] = ()
    """Rollouts worth imitating, with alternating turns of policy and environment. Text of the environment before the
    first turn is read as the end of the prompt; the last turn is the policy's."""
    preferences: tuple[Preference, ...] = ()
    rated: tuple[Rated, ...] = ()
    images: tuple[Image, ...] = ()
    """Images in the prompt, each at an `IMAGE` of its text."""
    fields: Mapping[str, Any] = field(default_factory=dict)
    """Every other column of the row, for rewards and environments."""
    asked: "Task | None" = None
    """The task as evaluation puts it, where that differs from training: with another condition or another form of the
    prompt. None where both are the same. Training tasks of a run do not have it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """What a sampler wrote after a prompt."""

    token_ids: IntArray
    """[T] sampled ids, the stop token included."""
    logp: FloatArray
    """[T] log-probability of each at the sampling temperature, before top-k, top-p and min-p."""
    stop_reason: StopReason
    version: int
    """Number of updates of the weights."""
    text: str
    """Decoded without the stop token or stop string."""
    entropy: FloatArray | None = None
    """[T] entropy in nats of the distribution of each, as for `logp`; None where the sampler does not give it."""
    vectors: FloatArray | None = None
    """[T, D] the vector of each, where tokens have one: see `Segment.vectors`."""
    cache: Sequence[Array] | None = None
    """Keys and values of the prompt and of all tokens but the last, as `posttrain.policies.Cache.take_out` gives them;
    None where they were not requested, or the completion has an end."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """Consecutive tokens that one actor wrote."""

    actor: str
    """``prompt``, ``environment``, ``demonstration``, ``recorded`` (written and rated before the run), ``draw`` (fresh
    noise on a sample of the policy, to learn from: `posttrain.datasets.chains`), or the role of the model that
    wrote it (``policy``, ...)."""
    token_ids: IntArray
    trained: bool = False
    """Whether the tokens are actions that an objective sees."""
    logp: FloatArray | None = None
    """Behavior log-probability of each token (for recorded text, the assumed one); else None."""
    entropy: FloatArray | None = None
    """Entropy in nats of the distribution that each token was drawn from, where the sampler gave it."""
    version: int = 0
    turn: int = 0
    """Number of the turn, from 0; a prompt, an observation and the reply to it share one."""
    state_key: str | None = None
    """Key of the state before the turn, for methods that compare turns in the same state."""
    reward: float = 0.0
    """Reward that the environment gave for this turn, credited to the segment's last trained token."""
    text: str = ""
    vectors: FloatArray | None = None
    """[T, D] for tokens that are not text: the pixels of a patch, or a point of a chain (diffusion, flow, control)."""
    allowed: IntArray | None = None
    """[T + M] where tokens were drawn among allowed ones: for each the number of these, then the ids of all."""

    def __len__(self) -> int:
        """Number of tokens."""
        return len(self.token_ids)

    @property
    def learner(self) -> str:
        """The role that learns from trained tokens: their writer, or the policy for `GIVEN` and ``draw``."""
        return "policy" if self.actor in (*GIVEN, "draw") else self.actor


@dataclass(frozen=True, slots=True, kw_only=True)
class Score:
    """The score of one trajectory. Status ``error``: scoring failed; it is never trained on as a zero."""

    value: float
    status: Status
    answer: str | None = None
    """The answer that was extracted from the completion and scored."""
    confidence: float | None = None
    """Probability of a correct answer that the completion itself states, if any."""
    explanation: str = ""
    parts: Mapping[str, "Score"] = field(default_factory=dict)
    """Scores that this one is computed from, by name."""
    spans: tuple[tuple[int, int, float, str], ...] = ()
    """(start, end, reward, part) in characters of the completion, given at the last token; `value` has their sum."""
    applies: bool = True
    """False for a reward that does not apply to the rollout: an ``error`` of the value NaN, which a sum leaves out."""


@dataclass(frozen=True, kw_only=True)
class Fact:
    """Information about a trajectory beyond its tokens: how an episode went, where a tree branched, ...

    A subclass is a frozen dataclass of JSON values. One that other components read is declared by the contract of a
    family, one that is only recorded by the rollout that makes it; your own rollouts declare their own.
    """

    def record(self) -> dict[str, Any]:
        """Entries of the column ``info`` in the record: the fields that are not None."""
        return {name: value for name, value in asdict(self).items() if value is not None}


F = TypeVar("F", bound=Fact)


@dataclass(frozen=True, kw_only=True)
class Trajectory:
    """One rollout of a task, from the prompt to its end."""

    task: Task
    segments: tuple[Segment, ...]
    stop_reason: StopReason
    sample: int = 0
    """Index of this rollout among those of its task in this step."""
    score: Score | None = None
    parent: int | None = None
    """Index of the rollout that this one branched off, for trees."""
    facts: tuple[Fact, ...] = ()
    """Information beyond the tokens, for rewards, advantages and the record."""
    failure: str = ""
    """Why the rollout ended early for a reason other than its writer, such as an error in an environment; else empty.
    Such a rollout is scored as an ``error``."""

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
        """[turns] index among the trained tokens of the last one of each turn, in the order of the turns."""
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
    def turn_reward(self) -> float:
        """Sum of the rewards of turns, which are no part of the score."""
        return sum(segment.reward for segment in self.segments)

    @property
    def learners(self) -> frozenset[str]:
        """The roles that learn from it; the policy if there is no other."""
        return frozenset(s.learner for s in self.segments if s.trained) or frozenset({"policy"})

    @property
    def demonstrated(self) -> bool:
        """Whether it has a demonstration."""
        return any(s.actor == "demonstration" for s in self.segments)

    @property
    def given(self) -> bool:
        """Whether any of it came with the task; such a trajectory is not a rollout of the policy."""
        return any(s.actor in GIVEN for s in self.segments)

    @property
    def solved(self) -> bool:
        """Whether its score is correct (status ``ok``)."""
        return self.score is not None and self.score.status == "ok"

    def fact(self, kind: type[F]) -> F | None:
        """The fact of a type; None where the rollout does not give one."""
        return next((fact for fact in self.facts if isinstance(fact, kind)), None)

    def scored(self, score: Score) -> "Trajectory":
        """The same trajectory with a score."""
        return replace(self, score=score)


@dataclass(frozen=True, kw_only=True)
class Group:
    """Trajectories that are compared with one another; usually the rollouts of one task."""

    trajectories: tuple[Trajectory, ...]
    key: str = ""
    pool: tuple[float, ...] = ()
    """Scores of all rollouts that these were selected from, where a filter dropped some; else empty."""
    together: bool = False
    """Whether it has the rollouts of all tasks that share the field which a reward requires (`Reward.together`)."""

    def __iter__(self) -> Iterator[Trajectory]:
        """Iterate over the trajectories."""
        return iter(self.trajectories)

    def __len__(self) -> int:
        """Number of trajectories."""
        return len(self.trajectories)

    @property
    def solved(self) -> float:
        """Share of correct rollouts, in [0, 1]; trajectories that came with the task are not counted."""
        own = [t.solved for t in self.trajectories if not t.given]
        return sum(own) / max(len(own), 1)

    @property
    def rewards(self) -> NDArray[np.float64]:
        """[N] values of the scores, with the rewards of turns; every trajectory must have been scored without error."""
        return np.array([value_of(t) + t.turn_reward for t in self.trajectories], np.float64)


def value_of(trajectory: Trajectory) -> float:
    """The value of a score that is present and not an error."""
    score = trajectory.score
    assert score is not None and score.status != "error", "unscored and failed trajectories are dropped before this"
    return score.value


@dataclass(frozen=True, kw_only=True)
class Batch:
    """The groups of one step with the signals of each trained token: all inputs of an advantage."""

    groups: tuple[Group, ...]
    signals: Mapping[Signal, tuple[FloatArray, ...]] = field(default_factory=dict)
    """By signal, for each trajectory in order, [T] numbers, one per trained token."""
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
    """The result of an advantage, per trajectory and trained token."""

    advantages: tuple[FloatArray, ...]
    value_targets: tuple[FloatArray, ...] = ()
    """Targets of a critic; empty for methods without one."""
    metrics: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Tokens:
    """The input of an objective: flat tensors over trained tokens only; ``tokens[signal]`` is a signal of its needs."""

    logp_T: "torch.Tensor"
    """Log-probability under the weights being trained (differentiable)."""
    behavior_logp_T: "torch.Tensor"
    """Behavior log-probability; NaN for tokens that were not sampled (demonstrations)."""
    old_logp_T: "torch.Tensor"
    """Under the weights at the start of this step's updates, also for tokens that were not sampled."""
    advantage_T: "torch.Tensor"
    sequence_T: "torch.Tensor"
    """Index into the sequences of this micro-batch, 0 .. N-1."""
    group_N: "torch.Tensor"
    turn_T: "torch.Tensor"
    length_N: "torch.Tensor"
    """Number of trained tokens of each sequence."""
    reward_N: "torch.Tensor"
    solved_N: "torch.Tensor"
    """1 where the rollout is correct, else 0."""
    group_solved_N: "torch.Tensor"
    """Share of correct rollouts in its group, over all micro-batches."""
    progress: float = 0.0
    value_target_T: "torch.Tensor | None" = None
    signals: "Mapping[Signal, torch.Tensor]" = field(default_factory=dict)
    """[T] each, velocities [T, D]: the needs other than log-probabilities. Those of the forward pass that trains are
    differentiable."""

    def __getitem__(self, signal: Signal) -> "torch.Tensor":
        """A signal. Raises `KeyError` for one that is not among the needs."""
        always = {LOGP: self.logp_T, OLD_LOGP: self.old_logp_T}
        return always[signal] if signal in always else self.signals[signal]

    @property
    def demonstrated_T(self) -> "torch.Tensor":
        """Whether the token was not sampled: it is in a demonstration."""
        return self.behavior_logp_T.isnan()

    def only(self, kept_T: "torch.Tensor") -> "Tokens":
        """The same sequences with only the tokens that are kept (bool [T])."""
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
    """A loss for each trained token, and metrics, which the learner averages.

    A metric has one number per token, per sequence (all [T], all [N], or some of them), or per comparison of sequences.
    """

    loss_T: "torch.Tensor"
    metrics: "Mapping[str, torch.Tensor]" = field(default_factory=dict)
