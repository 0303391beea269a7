r"""Monte Carlo tree search over lines: a state is the text so far, an action is one line.

Source: VM-MCTS of ReST-RL, arXiv:2508.19576, and its released code (github.com/THUDM/ReST-RL, algorithms/MCTS). A state
is expanded by sampling complete continuations of it. The first line of each is a child, equal lines are one child, and
a continuation without another line ends there. Only the `keep` best children stay selectable. With N visits, and V the
sum of the backed-up values over N, selection goes from each state to the child with the highest

    V + c sqrt((1 + ln N_parent) / (eps + N)),    eps = 0.1

with ties broken at random, until a state that is not expanded. What is backed up depends on the source of values:

    the reward (`value_role` none)    collecting: the rewards of the continuations; a new child has N = 0 and V = 0
    a value model                     answering: a new child has N = 1 and the model's value, plus one more of both for
                                      each repetition of its line; sum and count of all children are backed up, also of
                                      those that are not selectable

A terminal state that is selected again adds its own value once. Value models read tokens, and their values are clipped
to [0, 1]. The answer is the complete continuation with the highest value in the tree. In the source, collecting has c =
0.2, 3 children and 100 rounds; answering has c = 0.1, 5 children and 15 rounds, which are the defaults here.

A child is cut from the sampled ids after the token that completes the delimiter; nothing is tokenized again.

Differs: a terminal state and a line with the same text are two children (the code merges them). A continuation that
could not be scored is not counted, and a terminal one is not selected. The value of a sequence is computed once. Stop
strings are refused, since one that spans two lines would not be found.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from pydantic import NonNegativeFloat, PositiveInt, field_validator
from pydantic_core import PydanticCustomError

from posttrain.component import frozen
from posttrain.components.rollouts import Scorer
from posttrain.components.search import Found, Search
from posttrain.components.search._found import Values, found, sampler_of, scored
from posttrain.components.search._nodes import Node
from posttrain.engines import Sampler, Sampling
from posttrain.signals import Signal
from posttrain.types import Completion, Fact, IntArray, Segment, Task, Trajectory

EPSILON = 0.1
REPLACEMENT = "\ufffd"
"""Stands for a character some of whose bytes are missing."""


@dataclass(frozen=True, kw_only=True)
class Leaf(Fact):
    """The node of the tree that a rollout continues."""

    node: str
    """Name of the node: indices of the branches from the root."""


@frozen
class Tree(Search):
    """Monte Carlo tree search with complete continuations at every step."""

    iterations: PositiveInt = 15
    """Rounds: each expands one state, or selects a terminal one again."""
    samples: PositiveInt = 5
    """Continuations that are sampled to expand a state."""
    keep: PositiveInt = 5
    """Selectable children of a state; the others only count in its statistics."""
    exploration: NonNegativeFloat = 0.1
    """c, in units of value."""
    delimiter: str | PositiveInt = "\n"
    """What ends a line: a text, or a number of tokens."""
    value_role: str | None = "value"
    """The model with a reward head that gives values of states and continuations; None collects with the reward."""
    sampling: Sampling = Sampling()
    """How continuations are sampled; `max_tokens` limits a whole rollout. Stop strings are not allowed."""
    role: str = "policy"
    """The model that is sampled from."""

    @field_validator("sampling")
    @classmethod
    def refuse_stop_strings(cls, sampling: Sampling) -> Sampling:
        """Refuse stop strings, which may span two lines."""
        if sampling.stop:
            raise PydanticCustomError("stop", "a stop string may span two lines of a tree; use stop_token_ids")
        return sampling

    @field_validator("delimiter")
    @classmethod
    def refuse_nothing(cls, delimiter: str | int) -> str | int:
        """Refuse an empty delimiter."""
        if delimiter == "":
            raise PydanticCustomError("delimiter", "an empty delimiter ends no line; give a text or a number of tokens")
        return delimiter

    @property
    def roles(self) -> frozenset[str]:
        """The sampled model and the value model."""
        return frozenset(filter(None, (self.role, self.value_role)))

    @property
    def needs(self) -> frozenset[Signal]:
        """The value model's scores of states."""
        return frozenset() if self.value_role is None else frozenset({Signal("score", of=self.value_role)})

    @property
    def uses_rewards(self) -> bool:
        """True without a value model."""
        return self.value_role is None

    @property
    def temperature(self) -> float:
        """Sampling temperature; log-probabilities of greedy tokens are at temperature 1."""
        return self.sampling.temperature or 1.0

    async def search(self, task: Task, samplers: Mapping[str, Sampler], scorer: Scorer | None = None) -> Found:
        """Grow the tree for the given number of rounds."""
        sampler = sampler_of(self.role, samplers)
        values = None if self.value_role is None else Values(sampler_of(self.value_role, samplers))
        root = Node(segments=(sampler.prompt(task),))
        rollouts: list[Trajectory] = []
        known: list[float] = []
        again = 0
        for _ in range(self.iterations):
            if not root.selectable:
                break
            leaf = self.select(root, sampler)
            if leaf.ended:
                again += leaf.visits > 0
                leaf.back_up(leaf.value if leaf.visits else leaf.own, 1)
                continue
            fresh, fresh_values = await self._expand(leaf, task, sampler, values, scorer, first=len(rollouts))
            rollouts += fresh
            known += fresh_values
        nodes = list(root.below())
        states = [n.state for n in nodes if n.children and n.visits]
        return found(
            rollouts,
            known,
            states,
            nodes=len(nodes),
            expanded=sum(bool(n.children) for n in nodes),
            depth=max(len(n.way) for n in nodes),
            revisits=again,
        )

    def select(self, root: Node, sampler: Sampler) -> Node:
        """Descend to a state that is not expanded."""
        node = root
        while node.children:
            open_ones = [child for child in node.children if child.selectable]
            bounds = [self.bound(child.value, child.visits, node.visits) for child in open_ones]
            best = [child for child, bound in zip(open_ones, bounds, strict=True) if bound == max(bounds)]
            node = best[int(sampler.uniform() * len(best))] if len(best) > 1 else best[0]
        return node

    def bound(self, value: float, visits: int, parent_visits: int) -> float:
        """The upper confidence bound of a child."""
        return value + self.exploration * math.sqrt((1 + math.log(max(parent_visits, 1))) / (EPSILON + visits))

    async def _expand(
        self, node: Node, task: Task, sampler: Sampler, values: Values | None, scorer: Scorer | None, *, first: int
    ) -> tuple[Sequence[Trajectory], Sequence[float]]:
        """Expand a state and back up the values; returns the continuations and their values."""
        ids, prompt = node.token_ids, node.segments[0]
        room = min(self.sampling.max_tokens - (len(ids) - len(prompt)), sampler.context - len(ids))
        # The sampler refuses a prompt that leaves no room.
        sampling = replace(self.sampling, max_tokens=max(1, room))
        completions = await sampler.sample(ids, self.samples, sampling)
        lines = [self._line(node, completion, sampler) for completion in completions]
        owners = _merge(node, lines)
        rollouts: Sequence[Trajectory] = [
            _rollout(task, owner, line, completion, first + i)
            for i, (owner, line, completion) in enumerate(zip(owners, lines, completions, strict=True))
        ]
        if values is None:
            rollouts = await scored(task, rollouts, scorer)
            rollout_values = [t.score.value for t in rollouts if t.score is not None]
            for owner, value in zip(owners, rollout_values, strict=True):
                owner.own = value if owner.ended else math.nan
            valid = [value for value in rollout_values if not math.isnan(value)]
            node.back_up(sum(valid), len(valid))
        else:
            rollout_values = await values([t.token_ids for t in rollouts])
            child_values = await values([child.token_ids for child in node.children])
            for child, value in zip(node.children, child_values, strict=True):
                child.own, child.visits = value, owners.count(child)
                child.total = child.own * child.visits
            node.back_up(sum(child.total for child in node.children), sum(child.visits for child in node.children))
        self._hide(node)
        return rollouts, rollout_values

    def _hide(self, node: Node) -> None:
        """Leave the best children selectable; a terminal one that could not be scored never is."""
        ranked = sorted(node.children, key=lambda child: -child.value)
        for place, child in enumerate(ranked):
            child.selectable = place < self.keep and not (child.ended and math.isnan(child.own))
        if not any(child.selectable for child in node.children):
            node.close()

    def _line(self, node: Node, completion: Completion, sampler: Sampler) -> tuple[Segment, Segment | None]:
        """A continuation as its first line and the rest; None as the rest for a terminal line."""
        before, ids = node.token_ids[len(node.segments[0]) :], completion.token_ids
        text = sampler.decode(np.concatenate([before, ids]))
        if completion.stop_reason == "stop":
            text = text[: len(text) - (len(sampler.decode(ids)) - len(completion.text))]
        cut, start = self._cut(ids, sampler), len(node.text)
        rest = sampler.decode(ids[cut:]).strip()
        if not rest:
            return _piece(completion, self.role, node.name, slice(None), text[start:]), None
        line = sampler.decode(np.concatenate([before, ids[:cut]])).rstrip(REPLACEMENT)[start:]
        first = _piece(completion, self.role, node.name, slice(cut), line)
        return first, _piece(completion, self.role, "", slice(cut, None), text[start + len(line) :])

    def _cut(self, ids: IntArray, sampler: Sampler) -> int:
        """Number of tokens of the first line, up to the token that completes the delimiter."""
        if isinstance(self.delimiter, int):
            return min(self.delimiter, len(ids))
        fewest, most = 0, len(ids)  # a longer prefix never loses the delimiter
        while fewest < most:
            middle = (fewest + most) // 2
            if self.delimiter in sampler.decode(ids[:middle]):
                most = middle
            else:
                fewest = middle + 1
        return fewest


def _piece(completion: Completion, role: str, state: str, part: slice, text: str) -> Segment:
    """A part of a sampled completion."""
    return Segment(
        actor=role,
        token_ids=completion.token_ids[part],
        trained=True,
        logp=completion.logp[part],
        entropy=None if completion.entropy is None else completion.entropy[part],
        version=completion.version,
        state_key=state or None,
        text=text,
    )


def _merge(node: Node, lines: Sequence[tuple[Segment, Segment | None]]) -> list[Node]:
    """Make the children of a state; returns the child of each line."""
    children: dict[tuple[str, bool], Node] = {}
    for line, rest in lines:
        name = (line.text, rest is None)
        if name not in children:
            children[name] = Node(
                segments=(*node.segments, line), way=(*node.way, len(children)), parent=node, ended=rest is None
            )
    node.children = list(children.values())
    return [children[line.text, rest is None] for line, rest in lines]


def _rollout(
    task: Task, child: Node, pieces: tuple[Segment, Segment | None], completion: Completion, sample: int
) -> Trajectory:
    """A complete continuation. Equal lines share a segment where their ids are equal, not only their texts."""
    line, rest = pieces
    common = child.segments[-1]
    line = common if np.array_equal(common.token_ids, line.token_ids) else line
    more = () if rest is None else (replace(rest, state_key=child.name),)
    return Trajectory(
        task=task,
        segments=(*child.segments[:-1], line, *more),
        stop_reason=completion.stop_reason,
        sample=sample,
        facts=(Leaf(node=child.name),),
    )
