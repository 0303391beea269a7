"""Tree search over the turns of an environment: actions that were tried in one state are compared with one another.

In each of `iterations` a path is followed from the start. At a state that is reached for the first time `n` actions are
proposed, equal ones once, and a critic orders them; a proposal that was not tried goes first, in that order. Where all
were tried, the one with the highest

    Q + c sqrt(ln N(state) / (1 + N(action)))

is taken, without the bonus while N(state) is 0. A new action is played and the policy goes on to the end; the score of
that rollout is backed up along the path: Q <- (Q N + R) / (N + 1), N <- N + 1. The environment is played again from its
start each time, so that it must be deterministic in its draws.

Each state whose actions were tried gives a group: all that led to it is the prompt, and the reward of an action is
alpha Q + (1 - alpha) / (1 + rank), with its rank by the critic. Actions that were not tried are left out. An action has
the log-probability with which it was proposed.

The critic is the role `critic`, which is asked for the best of the remaining actions again and again; without one,
proposals are ordered by their own mean log-probability.

Source: Agent Q, Putta et al. 2024, arXiv:2408.07199 (its equations as others state them; no release), and a build by
others (sentient-engineering/agent-q at 6050777). alpha 0.5; K = 5 proposals and c = 1 are from there, or ours.

Differs: the history is not compressed. ``select_by=returns`` selects by Q of the rollouts alone, as that build does. An
answer of the critic without a number of a remaining action takes the first. The build gives -0.01 for failures; here
the reward decides.
"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Final, Literal

import numpy as np
from pydantic import Field, NonNegativeFloat, PositiveInt

from posttrain.component import frozen
from posttrain.components.environments import (
    Contained,
    Environment,
    EnvironmentFailed,
    Episode,
    Observation,
    with_opening,
)
from posttrain.components.rollouts import Rollout, Scorer
from posttrain.components.rollouts._continued import continued, record_of
from posttrain.components.rollouts._segments import sampled_segment, sampler_of
from posttrain.components.rollouts.turns import Turns
from posttrain.engines import Sampler, Sampling
from posttrain.errors import NoAnswer
from posttrain.types import Completion, Group, IntArray, Message, Score, Segment, Task, Trajectory

QUESTION: Final = "{history}\n\nWhich of these actions is the best one now?\n{actions}\nAnswer with its number only."
"""What the critic is asked."""


@frozen
class TreeSettings:
    """How the tree grows."""

    iterations: Annotated[int, Field(ge=1, le=10_000)] = 32
    """Rollouts per task."""
    exploration: NonNegativeFloat = 1.0
    """c of the bonus."""
    alpha: Annotated[float, Field(ge=0.0, le=1.0)] = 0.5
    """Weight of the rollouts' mean score against the critic's order; 1 does without the critic."""
    select_by: Literal["blend", "returns"] = "blend"
    """Q of the selection: with the critic's order, or of the rollouts alone."""
    critic: str = ""
    """Role of the critic; empty orders proposals by their own log-probability."""


@frozen
class StepSearch(Rollout):
    """Searches each task, and returns the actions of each state."""

    environment: Environment
    """The environment, of which each rollout has a new instance."""
    n: PositiveInt = 5
    """K: actions that are proposed in a state."""
    max_turns: PositiveInt = 8
    """Most turns of a rollout."""
    search: TreeSettings = TreeSettings()
    """How the tree grows."""
    sampling: Sampling = Sampling()
    """How each turn is sampled; `max_tokens` limits one turn. The stop strings of the environment are added."""
    role: str = "policy"
    """The model that acts and is trained."""

    @property
    def temperature(self) -> float:
        """Sampling temperature; log-probabilities of greedy tokens are at temperature 1."""
        return self.sampling.temperature or 1.0

    @property
    def roles(self) -> frozenset[str]:
        """The critic, if it is another model."""
        return frozenset({self.search.critic} - {"", self.role})

    def check(self, tasks: Sequence[Task]) -> None:
        """The tasks must be tasks of the environment."""
        self.environment.check_alone(tasks)

    def held_out(self, n: int, sampling: Sampling) -> Turns:
        """The same environment and number of turns, without a search."""
        return Turns(environment=self.environment, n=n, max_turns=self.max_turns, sampling=sampling, role=self.role)

    async def collect_scored(self, task: Task, samplers: Mapping[str, Sampler], scorer: Scorer) -> list[Group]:
        """A group for each state in which actions were tried."""
        return await continued(
            sampler_of(self.role, samplers), lambda sampler: self._searched(task, sampler, samplers, scorer)
        )

    async def _searched(
        self, task: Task, sampler: Sampler, samplers: Mapping[str, Sampler], scorer: Scorer
    ) -> list[Group]:
        own = sampler_of(self.search.critic, samplers) if self.search.critic else None
        tree = _Tree(self, self.n, task, sampler, own)
        await tree.start()
        failed: list[Trajectory] = []
        for number in range(self.search.iterations):
            path = await tree.path()
            (rollout,) = await scorer(Group(key=task.key, trajectories=(await tree.play(path, number),)))
            if rollout.score is None or rollout.score.status == "error":
                failed.append(rollout)
            else:
                back_up([tree.root, *path], rollout.score)
        groups = [group for node in tree.root.below() if (group := self._group(task, node)) is not None]
        return [*groups, *([Group(key=f"{task.key}/failed", trajectories=tuple(failed))] if failed else [])]

    def _group(self, task: Task, node: "Node") -> Group | None:
        """The tried actions of a state, each as a rollout of one turn; None without one."""
        found = list[Trajectory]()
        for child in node.children:
            if not child.visits or child.action is None:
                continue
            value = blended(child, self.search.alpha)
            solved = any(score.status == "ok" for score in child.scores)
            parts = {"first": child.scores[0], "last": child.scores[-1]}  # two for all, as each part is a metric
            why = f"mean of {child.visits} rollouts {child.q:.3f}, rank {child.rank} of the critic"
            score = Score(value=value, status="ok" if solved else "wrong", explanation=why, parts=parts)
            prompt = Segment(actor="prompt", token_ids=node.token_ids, turn=node.depth, text=node.text)
            facts = (Episode(valid_turns=(child.valid,)),)
            found.append(
                Trajectory(
                    task=task,
                    segments=(prompt, child.action),
                    stop_reason="stop",
                    sample=len(found),
                    facts=facts,
                    score=score,
                )
            )
        return Group(key=f"{task.key}/{node.name}", trajectories=tuple(found)) if found else None


@dataclass(eq=False, kw_only=True)
class Node:
    """A state, and the action that led to it."""

    action: Segment | None = None
    """None at the root."""
    rank: int = 0
    """Place in the critic's order, from 0."""
    depth: int = 0
    """Number of turns before it."""
    name: str = ""
    """Numbers of the actions that lead to it."""
    children: "list[Node]" = field(default_factory=list)
    scores: list[Score] = field(default_factory=list)
    """Of the rollouts through it."""
    known: bool = False
    """Whether it was reached, so that the following fields are set."""
    token_ids: IntArray = field(default_factory=lambda: np.zeros(0, np.int64))
    text: str = ""
    ended: bool = False
    """Whether nothing can be done in it."""
    valid: bool = True
    """Whether its action is one that the environment defines."""
    q: float = 0.0
    """Mean score of the rollouts through it."""
    visits: int = 0

    def below(self) -> "list[Node]":
        """The node and its descendants, parents first."""
        return [self, *(node for child in self.children for node in child.below())]


def blended(node: Node, alpha: float) -> float:
    """Alpha Q + (1 - alpha) / (1 + rank)."""
    return alpha * node.q + (1.0 - alpha) / (1 + node.rank)


def chosen(node: Node, settings: TreeSettings) -> Node:
    """The first action that was not tried, in the critic's order; else the one with the highest Q and bonus."""
    ordered = sorted(node.children, key=lambda child: child.rank)
    untried = next((child for child in ordered if not child.visits), None)
    if untried is not None:
        return untried
    alpha = settings.alpha if settings.select_by == "blend" else 1.0
    log_visits = math.log(node.visits) if node.visits else 0.0

    def key(child: Node) -> float:
        return blended(child, alpha) + settings.exploration * math.sqrt(log_visits / (1 + child.visits))

    return max(ordered, key=key)


def back_up(path: Sequence[Node], score: Score) -> None:
    """Take a score into the mean of each node."""
    for node in path:
        node.q = (node.q * node.visits + score.value) / (node.visits + 1)
        node.visits += 1
        node.scores.append(score)


class _Tree:
    """The search of one task."""

    def __init__(
        self, settings: StepSearch, proposals: int, task: Task, sampler: Sampler, critic: Sampler | None
    ) -> None:
        self._settings, self._proposals, self._task = settings, proposals, task
        self._sampler, self._critic = sampler, critic
        own, more = settings.sampling.stop, settings.environment.stop
        stop = (*own, *(s for s in more if s not in own))
        self._sampling = replace(settings.sampling, stop=stop)
        self._prompt: str | tuple[Message, ...] = task.prompt
        self.root = Node()

    async def start(self) -> None:
        """Note the first state, if the environment works; a rollout records why it does not."""
        draws = self._sampler.bind("draws")
        try:
            async with self._settings.environment.open(self._task, draws.uniform, record_of(draws)) as instance:
                self._begin(instance.begin())
        except EnvironmentFailed:
            pass

    async def path(self) -> list[Node]:
        """The nodes to play, from below the root to the first that was not tried, or to an end."""
        node, path = self.root, list[Node]()
        while node.known and not node.ended:
            if not node.children:
                await self._expand(node)
            node = chosen(node, self._settings.search)
            path.append(node)
            if not node.visits:
                break
        return path

    async def play(self, path: Sequence[Node], number: int) -> Trajectory:
        """A rollout that begins with the actions of a path; what is reached for the first time is noted."""
        segments: list[Segment] = []
        episode, failure = Episode(), ""
        # All rollouts of a task have the same draws of the environment, so that a path leads to the same state.
        draws, sampler = self._sampler.bind("draws"), self._sampler.bind("search", number)
        try:
            async with self._settings.environment.open(self._task, draws.uniform, record_of(sampler)) as instance:
                valid = await self._steps(instance, path, segments, sampler)
                await instance.finish()
                rewards = tuple(s.reward for s in segments if s.state_key is not None)
                episode = Episode(valid_turns=tuple(valid), turn_rewards=rewards, measures=instance.measures())
                episode = replace(episode, verdict=instance.verdict())
        except EnvironmentFailed as error:
            failure = str(error)
            segments = segments or [self._begin(Observation())]
        return Trajectory(
            task=self._task,
            segments=tuple(segments),
            stop_reason="environment",
            sample=number,
            facts=(episode,),
            failure=failure,
        )

    async def _steps(
        self, instance: Contained, path: Sequence[Node], segments: list[Segment], sampler: Sampler
    ) -> list[bool]:
        """Act until the end, first as on the path; returns whether each action is one of the environment's."""
        seen, valid = instance.begin(), list[bool]()
        segments.append(self._begin(seen))
        for turn in range(self._settings.max_turns):
            node = path[turn] if turn < len(path) else None
            own = node.action if node is not None else None
            if own is None:
                ids = np.concatenate([s.token_ids for s in segments])
                (completion,) = await sampler.sample(ids, 1, self._sampling)
                own = self._action(completion, turn)
            outcome = await instance.step(own.text)
            key = seen.text if seen.state_key is None else seen.state_key
            segments.append(replace(own, state_key=key, reward=float(outcome.reward)))
            valid.append(bool(outcome.valid))
            seen = outcome.observation
            observed = self._observed(own.token_ids, seen, turn + 1)
            size = sum(map(len, segments)) + len(observed)
            over = outcome.done or turn + 1 == self._settings.max_turns or size >= self._sampler.context
            if node is not None:
                _note(node, [*segments, observed], over, valid[-1])
            if over:
                break
            segments.append(observed)
        return valid

    def _action(self, completion: Completion, turn: int) -> Segment:
        """A turn of the model."""
        own = sampled_segment(completion, self._settings.role, turn=turn)
        return replace(own, text=self._sampler.decode(own.token_ids))

    def _begin(self, seen: Observation) -> Segment:
        """The prompt with the first observation; the root is that state."""
        self._prompt = with_opening(self._task.prompt, seen.text)
        ids = self._sampler.encode(self._prompt)
        text = self._prompt if isinstance(self._prompt, str) else self._sampler.decode(ids)
        self.root.known, self.root.token_ids, self.root.text = True, ids, text
        return Segment(actor="prompt", token_ids=ids, text=text)

    def _observed(self, turn_ids: IntArray, seen: Observation, turn: int) -> Segment:
        """An observation, in ids that continue the model's turn."""
        reply = Message(role="user", content=seen.text)
        ids = self._sampler.encode_reply(self._prompt, turn_ids, reply)
        return Segment(actor="environment", token_ids=ids, turn=turn, text=seen.text)

    async def _expand(self, node: Node) -> None:
        """Propose actions in a state, equal ones once, in the critic's order."""
        sampler = self._sampler.bind("propose", node.name)
        written = await sampler.sample(node.token_ids, self._proposals, self._sampling)
        proposals: dict[str, Segment] = {}
        for completion in written:
            own = self._action(completion, node.depth)
            proposals.setdefault(own.text, own)
        actions = list(proposals.values())
        for rank, place in enumerate(await self._order(node, actions)):
            child = Node(action=actions[place], rank=rank, depth=node.depth + 1, name=f"{node.name}.{rank}".strip("."))
            node.children.append(child)

    async def _order(self, node: Node, actions: Sequence[Segment]) -> list[int]:
        """Places of the actions, the best first."""
        left = list(range(len(actions)))
        if self._critic is None:
            return sorted(left, key=lambda i: -_mean_logp(actions[i]))
        found: list[int] = []
        critic = self._critic.bind("critic", node.name)
        while len(left) > 1:
            listed = "\n".join(f"{k + 1}. {actions[i].text.strip()}" for k, i in enumerate(left))
            request = QUESTION.replace("{history}", node.text).replace("{actions}", listed)
            found.append(left.pop(await self._asked(critic, request, len(left))))
        return [*found, *left]

    async def _asked(self, critic: Sampler, request: str, count: int) -> int:
        """The place that the critic names; the first where it names none."""
        try:
            (reply,) = await critic.write((Message(role="user", content=request),), 1, Sampling(max_tokens=8))
        except NoAnswer:
            return 0
        number = re.search(r"\d+", reply)
        return int(number[0]) - 1 if number and 1 <= int(number[0]) <= count else 0


def _note(node: Node, segments: Sequence[Segment], ended: bool, valid: bool) -> None:
    """Set what is known of a node that was reached."""
    if not node.known:
        node.known, node.ended, node.valid = True, ended, valid
        node.token_ids = np.concatenate([s.token_ids for s in segments])
        node.text = "".join(s.text for s in segments)


def _mean_logp(segment: Segment) -> float:
    return float(np.mean(segment.logp)) if segment.logp is not None and len(segment) else -math.inf
