"""Rollouts: strategies of sampling trajectories for a task.

Contract: every sampled token keeps its log-probability and the version of the weights that sampled it. Sampled token
ids are never tokenized again. Equal samplers give equal trajectories. Information about a trajectory beyond its tokens,
for other components, is a `Fact` that this contract or that of the environments declares.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from posttrain.component import Component
from posttrain.engines import Sampler, Sampling
from posttrain.signals import Signal
from posttrain.types import Fact, Group, Task

Scorer = Callable[[Group], Awaitable[Group]]
"""Returns a group with a score on every trajectory."""


@dataclass(frozen=True, kw_only=True)
class Prefix(Fact):
    """Size of the prefix that a rollout was given."""

    prefix_tokens: int
    prefix_share: float | None = None
    """Share of the demonstration that was drawn for the prefix, in [0, 1]."""


@dataclass(frozen=True, kw_only=True)
class Hint(Fact):
    """The first part of a solution that was in the prompt of a rollout."""

    hint_share: float
    """Share of the solution, in characters."""
    hint_has_answer: bool = False
    """Whether the task's answer is among them."""


@dataclass(frozen=True, kw_only=True)
class Inserted(Fact):
    """Texts that were put into a rollout while it was written."""

    insertions: int
    """Their number; 0 for a plain rollout."""
    executed: int
    """Calls of a tool that the environment answered without an error."""


@dataclass(frozen=True, kw_only=True)
class Difficulty(Fact):
    """How hard the task of a rollout is for the model, by its own rollouts of it."""

    pass_rate: float
    """Share of the model's rollouts that are correct, in [0, 1]."""
    difficulty: Literal["easy", "medium", "hard"]

    @classmethod
    def of(cls, solved: int, rollouts: int, least: tuple[float, float]) -> "Difficulty":
        """Easy from a share of the first of `least` on, else medium from the second on, else hard."""
        rate = solved / rollouts
        return cls(pass_rate=rate, difficulty="easy" if rate >= least[0] else "medium" if rate >= least[1] else "hard")


@dataclass(frozen=True, kw_only=True)
class Row(Fact):
    """The rollout is one of several of an episode, whose history was replaced in between."""

    episode: int
    """Number of the episode within the group."""
    row: int
    """Number of the rollout within the episode."""
    counts: bool = True
    """Whether statistics of outcomes count the rollout: of several with one outcome only the last one."""


@dataclass(frozen=True, kw_only=True)
class Exchange(Fact):
    """The rollout is what one of two agents saw and wrote in a conversation."""

    exchange: int
    """Number of the conversation within the group; the rollouts of both agents have it."""
    turns: tuple[str, ...]
    """What both wrote, one after the other."""
    tokens: int
    """Tokens that both wrote."""
    agreed: str
    """The answer that two turns stated; empty without one."""
    longest: float | None = None
    """Number of tokens that the length is compared with; None takes the longest conversation of the group."""

    def record(self) -> dict[str, Any]:
        """The fields; the texts are ``written_turns``, since the number of an episode's turns is ``turns``."""
        own = super().record()
        return {"written_turns": own.pop("turns"), **own}


@dataclass(frozen=True, kw_only=True)
class DataRating(Fact):
    """The rating of a recorded completion in the data."""

    rating: float


@dataclass(frozen=True, kw_only=True)
class Earlier(Fact):
    """The rollout was sampled in an earlier step, and waited in the stage's memory.

    Its old log-probabilities are those that the learner computes before the update, not those of its sampling.
    """

    age: int
    """Number of steps since then."""


@dataclass(frozen=True, kw_only=True)
class Shared(Fact):
    """Another node wrote the text of this rollout, which is in the ids of the one that reads it."""

    author: str
    """Role of the model that wrote it."""
    draw: float
    """A number in [0, 1) that was drawn for the group, by which a reader chooses."""


@dataclass(frozen=True, kw_only=True)
class Shuffled(Fact):
    """How the model does on the same task with its events in another order."""

    accuracy: float
    """Share of its completions there that are correct, in [0, 1]."""


@dataclass(frozen=True, kw_only=True)
class Continued(Fact):
    """How a rollout goes on from a prefix that its group shares."""

    prefix_tokens: int
    at_once: bool
    """Whether the answer is forced right after the prefix."""


@dataclass(frozen=True, kw_only=True)
class Pointwise(Fact):
    """The rollout states a score of one document of its task."""

    document: int
    """Its place, from 0."""
    stated: int | None
    """The score, from 0 to 10; None where there is none."""
    probability: float
    """Probability of the tokens of the score, when they were sampled."""


@dataclass(frozen=True, kw_only=True)
class Spans(Fact):
    """Token ranges of the tagged parts of a rollout, for the tags that an advantage or a penalty names (`tags`).

    A tag in quotation marks is a key in JSON; its parts are the texts that are its value.
    """

    ranges: Mapping[str, tuple[tuple[int, int], ...]]
    """By tag, for each part the index of its first trained token, and that after its last."""
    closings: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    """By tag, for each closing tag the index of the trained token that completes it."""


@dataclass(frozen=True, kw_only=True)
class Verification(Fact):
    """A verifier's verdicts on the steps of a solution."""

    verdicts: tuple[float, ...]
    """[K] mean verdict on each step, in [-1, 1]; empty without a well-formed verification."""
    step_ends: tuple[int, ...]
    """[K] number of trained tokens up to the end of each step."""


class Rollout(Component):
    """A sampling strategy, written as sequential asynchronous code; the engine batches concurrent requests."""

    @property
    def temperature(self) -> float:
        """Sampling temperature of the trained tokens; the learner's log-probabilities use it too."""
        return 1.0

    @property
    def group_size(self) -> int | None:
        """Rollouts in each group, where all of them are sampled alike and their number is fixed; else None."""
        return None

    @property
    def splits_episodes(self) -> bool:
        """Whether an episode may be several trajectories of a group, which have its one outcome (see `Row`)."""
        return False

    @property
    def in_environment(self) -> bool:
        """Whether its field `environment` shows something after the prompt, which may be empty then."""
        return hasattr(self, "environment")

    @property
    def roles(self) -> frozenset[str]:
        """Roles besides the policy whose models it uses; the recipe must have them."""
        return frozenset()

    @property
    def helpers(self) -> frozenset[str]:
        """Roles besides the policy whose models `held_out` uses."""
        return frozenset()

    @property
    def needs(self) -> frozenset[Signal]:
        """Signals that it needs: log-probabilities or scores under the models of other roles."""
        return frozenset()

    def check(self, tasks: Sequence[Task]) -> None:
        """Raise `UserError`, before anything is sampled, for tasks that lack what the rollout requires."""

    def held_out(self, n: int, sampling: Sampling) -> "Rollout | None":
        """The rollout for held-out tasks: `n` trajectories in the same environment, without the help of training.

        None, for rollouts of a single turn, samples `n` completions of the prompt.
        """
        return None

    def at(self, progress: float) -> "Rollout":
        """The rollout with its scheduled settings at this progress of the stage, in [0, 1]."""
        return self

    def drawn(self, uniform: float) -> "Rollout":
        """The rollout with what is drawn once for all tasks of a step, by a number in [0, 1) of that step."""
        return self

    @property
    def critics(self) -> frozenset[str]:
        """Roles of critics that rollouts of some step may need, besides the stage's own."""
        return frozenset()

    @property
    def critic(self) -> str | None:
        """Role of the critic of the rollouts of a step, see `at` and `drawn`; None is the stage's own."""
        return None

    async def collect(self, task: Task, samplers: Mapping[str, Sampler]) -> list[Group]:
        """Sample a task with the models of the recipe, by role, and return groups of comparable trajectories.

        The samplers of a call are bound to (seed, step, task): the n-th completion of a sampler does not depend on what
        else is being sampled.
        """
        raise NotImplementedError

    async def collect_scored(self, task: Task, samplers: Mapping[str, Sampler], scorer: Scorer) -> list[Group]:
        """Sample a task and score every trajectory once. Stages call this method.

        A rollout whose sampling depends on scores overrides it instead of `collect`. A group that is returned without
        scores is not finished: the next step calls `go_on` with it.
        """
        return [await scorer(group) for group in await self.collect(task, samplers)]

    @property
    def goes_on(self) -> bool:
        """Whether a later step may go on with its groups."""
        return type(self).go_on is not Rollout.go_on

    async def go_on(self, group: Group, samplers: Mapping[str, Sampler], scorer: Scorer) -> list[Group]:
        """Go on with a group that was returned without scores in an earlier step."""
        raise NotImplementedError
