r"""Sibling steps of a search tree: those with a positive value preferred to those with a negative one.

Source: CPL, arXiv:2409.08642, and its released code (keesh0410/CPL-Reasoning at 61b99b4, gen_data, mcts_plan); the
search is in `posttrain.components.pairings._plans`. A node is a prefix of steps; the root has `first` sampled steps,
other nodes `samples`, equal ones once. Both texts of a pair begin with the same steps, so that in the difference of
their log-probabilities, each minus the reference's, only the two steps are left. Neither has an end token, unless it is
a solution (field ``cut``). ``margin`` is the difference of their values, in [-1, 1] each: siblings share the value of
their parent, so that it is the difference of their advantages.

A solution is a step without a `delimiter` after it. One that is cut, or has more than `depth` steps, is a failure of
form: -1 in the tree, and in no pair. `value_role` names a model with the head ``reward`` that estimates the reward of a
prefix in [0, 1]; None estimates 0, as the fresh value model of the first round does.

Differs: the value model's estimate v of the reward is taken as 2 v - 1 (its head ends in tanh in the release). A
solution that cannot be scored is left out of the tree. The rollouts of the selection are in no pair (``n: 1`` samples
the fewest).
"""

import math
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

import numpy as np
from pydantic import Field, NonNegativeFloat

from posttrain.component import frozen
from posttrain.components.pairings import NOTHING_SCORED, Paired, Pairing, Rollouts
from posttrain.components.pairings._plans import Node, grow, pairs_of
from posttrain.engines import Sampler, Sampling
from posttrain.signals import Signal
from posttrain.types import Completion, FloatArray, Group, IntArray, Preference, Segment, Trajectory

NO_PAIR = "no siblings have values on both sides of 0"


@dataclass(frozen=True, kw_only=True)
class Prefix:
    """Sampled steps after the prompt."""

    token_ids: IntArray
    text: str = ""
    depth: int = 0


@frozen
class Siblings(Pairing):
    """Searches over steps and pairs siblings."""

    iterations: Annotated[int, Field(ge=1, le=10_000)] = 200
    """Nodes that are expanded (200 in the first round, 100 in the second)."""
    first: Annotated[int, Field(ge=2, le=64)] = 5
    """Steps that are sampled after the prompt."""
    samples: Annotated[int, Field(ge=2, le=64)] = 3
    """Steps that are sampled after other nodes."""
    depth: Annotated[int, Field(ge=1, le=64)] = 6
    """Most steps of a solution."""
    exploration: NonNegativeFloat = 1.5
    """c, in units of value."""
    delimiter: Annotated[str, Field(min_length=1)] = "\n"
    """What ends a step."""
    value_role: str | None = None
    """The value model; None has none."""
    sampling: Sampling = Sampling(temperature=0.7, max_tokens=64)
    """How steps are sampled; `max_tokens` limits a whole solution."""

    @property
    def gives(self) -> frozenset[str]:
        """The difference of the values."""
        return frozenset({"margin"})

    @property
    def roles(self) -> frozenset[str]:
        """The value model."""
        return frozenset() if self.value_role is None else frozenset({self.value_role})

    @property
    def needs(self) -> frozenset[Signal]:
        """The value model's scores."""
        return frozenset() if self.value_role is None else frozenset({Signal("score", of=self.value_role)})

    async def pair(self, rollouts: Rollouts) -> Paired:
        """Grow one tree, and pair the children of each node."""
        if all(t.score is None or t.score.status == "error" for t in rollouts.trajectories):
            return Paired(reason=NOTHING_SCORED)
        tree = Tree(self, rollouts)
        root = Node(state=Prefix(token_ids=np.zeros(0, np.int64)))
        await grow(
            root,
            iterations=self.iterations,
            exploration=self.exploration,
            expand=tree.expand,
            estimate=tree.estimate,
            uniform=rollouts.sampler.bind("ties").uniform,
        )
        if not tree.scored and self.value_role is None:
            return Paired(reason=NOTHING_SCORED, rollouts=tree.sampled)
        found = [
            self._made(a, b, qa, qb)
            for node in root.below()
            for a, b, qa, qb in pairs_of(node.children, SOLUTIONS)
            if a.state.text.strip() and b.state.text.strip() and a.state.text != b.state.text
        ]
        return Paired(pairs=tuple(found), reason="" if found else NO_PAIR, rollouts=tree.sampled)

    def _made(self, better: Node[Prefix], worse: Node[Prefix], high: float, low: float) -> Preference:
        cut: Literal["both", ""] = "both" if better.outcome is None else ""
        origin = [{"writer": "policy", "sample": node.visits, "value": node.q} for node in (better, worse)]
        fields: dict[str, Any] = {
            "rule": self.kind,
            "margin": high - low,
            "depth": better.state.depth,
            "origin": origin,
        }
        fields |= {"cut": cut} if cut else {}
        return Preference(chosen=better.state.text, rejected=worse.state.text, fields=fields)

    def of(self, prompt: int, prefix: Prefix, context: int) -> Sampling | None:
        """How a step after a prefix is sampled; None where no room is left."""
        room = min(self.sampling.max_tokens - len(prefix.token_ids), context - prompt - len(prefix.token_ids))
        stop = (*self.sampling.stop, self.delimiter)
        return None if room < 1 else replace(self.sampling, max_tokens=room, stop=stop)

    def goes_on(self, depth: int) -> bool:
        """Whether a step may follow this many."""
        return depth < self.depth

    def count(self, prefix: Prefix) -> int:
        """Steps that are sampled after a prefix."""
        return self.samples if prefix.depth else self.first


SOLUTIONS = 0.3
"""By what the values of solutions are multiplied, in the released data."""


class Tree:
    """What the tree of one task is grown by."""

    def __init__(self, settings: Siblings, rollouts: Rollouts) -> None:
        self.settings, self.rollouts = settings, rollouts
        self.sampler: Sampler = rollouts.sampler.bind("plans")
        self.prompt = self.sampler.prompt(rollouts.task)
        self.scored = self.sampled = 0

    async def expand(self, node: Node[Prefix]) -> list[Node[Prefix]]:
        """Distinct next steps; terminal ones with their outcome."""
        prefix = node.state
        sampling = self.settings.of(len(self.prompt), prefix, self.sampler.context)
        if sampling is None:
            return []
        ids = np.concatenate([self.prompt.token_ids, prefix.token_ids])
        found = await self.sampler.sample(ids, self.settings.count(prefix), sampling, self.prompt.vectors)
        self.sampled += len(found)
        children: dict[str, Node[Prefix]] = {}
        for completion in found:
            child = await self._child(prefix, completion)
            if child is not None:
                children.setdefault(child.state.text + "\0" * (child.outcome is None), child)
        return list(children.values())

    async def estimate(self, node: Node[Prefix]) -> float:
        """The value model's estimate of a prefix, in [-1, 1]; 0 without one."""
        role = self.settings.value_role
        if role is None:
            return 0.0
        ids = np.concatenate([self.prompt.token_ids, node.state.token_ids])
        value = await self.rollouts.samplers[role].score(ids)
        return 2.0 * min(max(value, 0.0), 1.0) - 1.0 if math.isfinite(value) else 0.0

    async def _child(self, prefix: Prefix, completion: Completion) -> Node[Prefix] | None:
        """A node after one more step; None for a solution that cannot be scored."""
        ids = np.concatenate([prefix.token_ids, completion.token_ids])
        state = Prefix(token_ids=ids, text=self.sampler.decode(ids), depth=prefix.depth + 1)
        goes_on = self.settings.delimiter in self.sampler.decode(completion.token_ids)
        prior = float(np.exp(_mean(completion.logp)))
        if goes_on and self.settings.goes_on(state.depth):
            return Node(state=state, prior=prior)
        if goes_on or completion.stop_reason == "length":
            return Node(state=state, prior=prior, outcome=-1.0, broken=True)
        segment = Segment(actor="policy", token_ids=ids, trained=True, text=state.text)
        answer = Trajectory(task=self.rollouts.task, segments=(self.prompt, segment), stop_reason="stop")
        [graded] = (await self.rollouts.scorer(Group(key=self.rollouts.task.key, trajectories=(answer,)))).trajectories
        if graded.score is None or graded.score.status == "error":
            return None
        self.scored += 1
        return Node(state=state, prior=prior, outcome=1.0 if graded.solved else -1.0)


def _mean(logp_T: FloatArray) -> float:
    return float(logp_T.mean()) if len(logp_T) else 0.0
