"""Rewards: components that score trajectories, or reshape the scores of another reward.

Contract: one `Score` per trajectory, in order; deterministic. Scoring that fails gives status ``error`` with an
explanation and the value NaN, never a finite number (`failure`).
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Annotated, Any, ClassVar, Final

import numpy as np
from pydantic import Field
from pydantic_core import PydanticCustomError

from posttrain.component import Component, frozen
from posttrain.engines import Labelling, Sampler, sampler_of
from posttrain.errors import UserError
from posttrain.signals import Signal
from posttrain.types import Fact, FloatArray, Group, IntArray, Message, Score, Task, Trajectory

ALIASES: Final = {"translation": "translated"}
"""Other names of kinds, where one is named by a text."""


@dataclass(frozen=True, kw_only=True)
class RewardContext:
    """What a reward may use besides the group that it scores."""

    samplers: Mapping[str, Sampler] = field(default_factory=dict)
    """The recipe's models by role, for judges and likelihood rewards."""
    progress: float = 0.0
    """Progress of the stage, in [0, 1]."""
    step: int = 0
    turn: int | None = None
    """The step beside which it is scored, where that may be another one than that of its tasks."""
    place: int = 0
    """Of the group's task among those that are scored at the same time, whichever ends first."""
    seed: int = 0
    """Seed of the stage's draws."""
    learning: bool = False
    """Whether the scores are learned from: in a stage of reinforcement, not in evaluations, selections and audits."""
    as_given: bool = False
    """Whether a group is shown in its own order, as in audits, which show every order. Else rewards that show several
    rollouts at a time draw an order for each item."""
    state: dict[str, Any] = field(default_factory=dict)
    """The reward's state: JSON, changed in place, saved in every checkpoint."""

    def order(self, count: int, *key: str | int) -> list[int]:
        """An order of `count` rollouts that is drawn by this key, the step and the seed; 0, 1, 2, ... `as_given`."""
        if self.as_given:
            return [*range(count)]
        name = ":".join(map(str, (key[0], self.seed, self.step, *key[1:])))
        return Random(name).sample(range(count), count)

    def sampler(self, role: str, reward: str) -> Sampler:
        """The sampler of a role for a reward of kind `reward`. Raises `UserError` for a role without a model."""
        return sampler_of(role, self.samplers, f"the {reward} reward uses")


@dataclass(frozen=True, kw_only=True)
class SpanRewards(Fact):
    """Where the spans of a score are given (`Score.spans`)."""

    span_rewards: tuple[tuple[int, float], ...]
    """Index of a trained token of the rollout, and the reward at it."""


@dataclass(frozen=True, kw_only=True)
class Gold:
    """A completion that nothing beats, for audits."""

    answer: str
    """The answer as the layout has it."""
    form: str
    """The layout, with ``{answer}`` in place of the answer."""
    compared: bool = True
    """Whether another answer in this layout is wrong."""


@frozen
class RewardAudit:
    """Which texts may outrank right answers, and how often: settings of the reward ``audited`` and of stages."""

    most_fooled: Annotated[float, Field(ge=0.0, le=1.0)] = 0.05
    """Largest share of right answers that a key may outrank; 1 measures, and stops nothing."""
    pairs: Annotated[int, Field(ge=1, le=100_000)] = 16
    """Right answers that each key is compared with."""
    every: Annotated[int, Field(ge=0, le=1_000_000)] = 10
    """Steps between audits by the policy's own outputs; 0 has none."""
    frequent: Annotated[int, Field(ge=1, le=256)] = 20
    """Outputs of such an audit."""
    keys: Annotated[tuple[str, ...], Field(max_length=256)] | None = None
    """Texts without content; None takes marks, openers, forged verdicts and praise."""


class Reward(Component):
    """Scores the trajectories of a group."""

    RENAMED_KINDS: ClassVar = {"by_field": "routed", "cosine": "shaped_length"}

    @property
    def wrapped(self) -> "Mapping[str, Reward]":
        """The rewards that it is computed from, by name; it passes on what they need."""
        return {}

    @property
    def roles(self) -> frozenset[str]:
        """Roles whose models it uses; the recipe must have them."""
        return frozenset().union(*(part.roles for part in self.wrapped.values()))

    @property
    def needs(self) -> frozenset[Signal]:
        """Signals that it needs: log-probabilities or scores under the models of other roles."""
        return frozenset()

    @property
    def remote_needs(self) -> frozenset[Signal]:
        """Needs that an endpoint gives too: log-probabilities of single labels (`posttrain.engines.Labelling`)."""
        return frozenset()

    @property
    def needs_answer(self) -> bool:
        """Whether it compares with the reference answer of the task, and cannot score a task without one."""
        return any(part.needs_answer for part in self.wrapped.values())

    @property
    def runs(self) -> str:
        """Language of the programs that it extracts from completions and runs; empty if it runs none."""
        return next((part.runs for part in self.wrapped.values() if part.runs), "")

    @property
    def spans(self) -> bool:
        """Whether its scores have rewards of parts of a completion (`Score.spans`)."""
        return any(part.spans for part in self.wrapped.values())

    @property
    def undiscounted(self) -> bool:
        """Whether those have a meaning only as undiscounted sums from a token to the end of the rollout."""
        return any(part.undiscounted for part in self.wrapped.values())

    @property
    def initial(self) -> dict[str, Any]:
        """The state before the first step: empty for one that keeps nothing, or that begins with the first scores."""
        return {}

    async def score(self, group: Group, context: RewardContext) -> Sequence[Score]:
        """Score every trajectory of the group."""
        raise NotImplementedError

    def gold(self, task: Task) -> Gold | None:
        """The best completion of a task; None where the reference answer as it is, or a demonstration, is one."""
        return next((found for part in self.wrapped.values() if (found := part.gold(task)) is not None), None)

    def prepare(self) -> None:
        """Load what scoring needs, before anything is sampled. Raises `UserError` where it is not available."""
        for part in self.wrapped.values():
            part.prepare()

    def check(self, tasks: Sequence[Task]) -> None:
        """Raise `UserError` for tasks that it has no rule to score by; called before anything is sampled."""
        for part in self.wrapped.values():
            part.check(tasks)

    def notes(self, tasks: Sequence[Task]) -> Sequence[str]:
        """What the dry run and the start of a run say about it."""
        return [note for part in self.wrapped.values() for note in part.notes(tasks)]

    @property
    def judges(self) -> frozenset[str]:
        """Roles that are asked for verdicts on texts: a policy that has one judges itself."""
        return frozenset(role for part in self.wrapped.values() for role in part.judges)

    @property
    def reads_sampled(self) -> frozenset[str]:
        """Roles with a head that reads the tokens that were sampled, up to their own end token."""
        return frozenset(role for part in self.wrapped.values() for role in part.reads_sampled)

    @property
    def uses_models(self) -> bool:
        """Whether models decide, or help to decide, its value: a text without content may fool them, as no rule."""
        return bool(self.roles)

    @property
    def compares(self) -> bool:
        """Whether the score of a rollout depends on the others of its group."""
        return any(part.compares for part in self.wrapped.values())

    @property
    def together(self) -> str | None:
        """A field of tasks, such as ``query``, or ``domain``: tasks of the same value are drawn together, and the
        rollouts of all of them are scored as one group, in the order of the tasks. None scores each task by itself.

        Raises `UserError` for parts of which others compare the rollouts of a single task, or of other fields.
        """
        parts = self.wrapped.values()
        fields = {part.together for part in parts} - {None}
        if not fields:
            return None
        others = [part.kind for part in parts if part.together is None and part.compares]
        if len(fields) > 1 or others:
            found = f"by the fields {', '.join(map(repr, sorted(map(str, fields))))}"
            other = f", and '{others[0]}' those of a single task" if others else ""
            raise UserError(f"the parts of the reward '{self.kind}' compare rollouts {found}{other}; take one of them")
        return fields.pop()

    @property
    def reads_own_logp(self) -> bool:
        """Whether it reads the log-probabilities of sampling, which a text that the policy did not sample lacks."""
        return any(part.reads_own_logp for part in self.wrapped.values())

    @property
    def fingerprint(self) -> Mapping[str, str]:
        """SHA-256 of each of the user's files that compute scores, by path, for the record of a run."""
        return {file: digest for part in self.wrapped.values() for file, digest in part.fingerprint.items()}

    @classmethod
    def from_text(cls, text: str) -> Mapping[str, Any]:
        """``file.py:name`` and ``package.module:name`` are functions; anything else is a kind."""
        if text.endswith(".py"):
            raise PydanticCustomError(
                "kind",
                "a function is written {file}:NAME, a class that is a Reward {how}",
                {"file": text, "how": f"{{kind: {text}}}"},
            )
        return {"kind": "function", "path": text} if ":" in text else {"kind": ALIASES.get(text, text)}

    @classmethod
    def from_items(cls, items: Sequence[Any]) -> Any:
        """Several rewards are their sum; each part has the name of its function or kind."""
        parts: dict[str, Any] = {}
        for item in items:
            own = name = _name(item)
            count = 1
            while name in parts:
                count += 1
                name = f"{own}_{count}"
            parts[name] = item
        return {"kind": "sum", "parts": parts} if parts else items


def _name(item: Any) -> str:
    """The name of a part of a list: that of its function, or its kind."""
    if isinstance(item, Mapping):
        item = item.get("path") or item.get("kind")
    return str(item if isinstance(item, str) else getattr(item, "kind", "part")).rpartition(":")[2]


async def scored(group: Group, reward: Reward, context: RewardContext) -> Group:
    """The group with a score on every trajectory. Failed rollouts get status ``error``; the reward never sees them.

    Raises `UserError` for a reward that scores several tasks together, and a group of a single one.
    """
    if reward.together is not None and not group.together:
        raise UserError(
            f"the reward '{reward.kind}' scores the rollouts of all tasks with the same '{reward.together}' together, "
            "which the stage rl, evaluations and posttrain score do; here each task is scored by itself"
        )
    valid = [i for i, t in enumerate(group) if not t.failure]
    valid_group = replace(group, trajectories=tuple(group.trajectories[i] for i in valid))
    scores = dict(zip(valid, await reward.score(valid_group, context) if valid else (), strict=True))
    trajectories = (t.scored(scores[i] if i in scores else failure(t.failure)) for i, t in enumerate(group))
    return replace(group, trajectories=tuple(trajectories))


def joined(groups: Sequence[Group], key: str) -> Group:
    """One group of all rollouts of tasks that a reward scores together."""
    return Group(key=key, trajectories=tuple(t for group in groups for t in group), together=True)


def in_own_tokens(trajectory: Trajectory, sampler: Sampler) -> IntArray:
    """A rollout in a model's own tokens: the prompt, and all that follows it as one completion.

    Raises `UserError` for images, and for turns of a chat, whose marks are those of the policy's template.
    """
    turns = len([segment for segment in trajectory.segments if segment.actor != "prompt"])
    prompt = trajectory.task.prompt
    if trajectory.task.images or (turns != 1 and not isinstance(prompt, str)):
        raise UserError(
            "reward.own_tokens encodes a rollout as text, and this one has images, or several turns of a chat; take a "
            "reward model with the policy's vocabulary, and leave own_tokens out"
        )
    ids = np.concatenate([sampler.encode(prompt), sampler.encode_completion(prompt, trajectory.completion)])
    return np.asarray(ids, np.int64)


def read_by(
    sampler: Sampler, trajectory: Trajectory, *, own_tokens: bool = False
) -> tuple[IntArray, FloatArray | None, bool]:
    """What a head reads of a rollout: its ids and vectors up to the end of the context, and whether it goes on."""
    ids, vectors = trajectory.token_ids, trajectory.vectors
    if own_tokens:
        ids, vectors = in_own_tokens(trajectory, sampler), None
    room = sampler.context
    return ids[:room], None if vectors is None else vectors[:room], len(ids) > room


def fitting(model: Sampler, longest: int, request: Callable[[int], str | Sequence[Message]], *, reply: int = 0) -> int:
    """How many characters of each candidate are shown: `longest`, or as many as fit into the context of a model here.

    `request` makes the prompt with this many. Where it is too long with all, the shorter one leaves `reply` tokens too,
    a quarter of the context at most.
    """
    if isinstance(model, Labelling):
        return longest

    def fits(characters: int, more: int) -> bool:
        return len(model.encode(request(characters))) + more <= model.context

    if fits(longest, min(reply, 1)):
        return longest
    low, high, reply = 0, longest, min(reply, model.context // 4)
    while low + 1 < high:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle, reply) else (low, middle)
    return low


def counted(holds: bool) -> Score:
    """A part whose mean is the share of the rollouts that it holds of."""
    return Score(value=float(holds), status="ok")


def failure(explanation: str, *, answer: str | None = None, parts: Mapping[str, Score] | None = None) -> Score:
    """The score of a trajectory that could not be scored. Its value is NaN, so that no sum with it is a number."""
    return Score(value=math.nan, status="error", answer=answer, explanation=explanation, parts=parts or {})
