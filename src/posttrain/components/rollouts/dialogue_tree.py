r"""A tree of conversations of two agents, whose sibling turns are compared with one another.

Source: Optima, arXiv:2410.08115, and its release (thunlp/Optima at 4017740), the search of iDPO. A node is a turn; its
value is the mean reward of the conversations through it. In each of `searches` a node is expanded: `rollouts`
conversations go on from it to their end. A candidate is the root, or a node whose first child has children. One whose
text is within the normalised edit distance `apart` of a node that was expanded is no candidate, nor is that node
itself, so that a node is expanded once. Of the `best` candidates by value one is drawn, by the softmax of their values.
A new turn within `merged` of a sibling, over its length plus one, is that sibling.

Each node with several children gives a group: the prompt is what the speaker read, and the rollouts are the turns, with
their values. `filters/turn_pairs` keeps the best and the worst of those that are far enough apart. Values are those at
the end of the search; the release keeps the best and the worst child as pointers that may be out of date.

`fresh` conversations are sampled first. The 85th percentile of their lengths in tokens, plus one, is what the length of
a conversation is compared with (`Exchange.longest`), so that the share may be above 1.

Differs: the release samples anew for all tasks together and has one percentile for an iteration; here each task has its
own. What is merged keeps the ids of the turn that was first.
"""

import asyncio
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any

import numpy as np
from pydantic import Field, field_validator
from pydantic_core import PydanticCustomError

from posttrain.component import frozen
from posttrain.components.rollouts import Rollout, Scorer
from posttrain.components.rollouts._exchange import Talk, TwoAgents, rollouts_of
from posttrain.components.rollouts._segments import sampler_of
from posttrain.components.rollouts.dialogue import Dialogue
from posttrain.datasets.distances import edit_distance
from posttrain.engines import Sampler, Sampling
from posttrain.types import Group, Score, Segment, Task, Trajectory

Count = Annotated[int, Field(ge=1, le=10_000)]
Share = Annotated[float, Field(ge=0.0, le=1.0)]


@frozen
class DialogueTree(Rollout):
    """Searches each task, and returns the turns of each node with several children."""

    of: Rollout = Dialogue()
    """How the two talk, or the `game` that they play; its `n` and `formats` are not used. A partner's turns are no
    pairs; where it is swapped, a task draws its place."""
    searches: Count = 8
    """Nodes that are expanded, at most."""
    rollouts: Count = 3
    """Conversations that go on from each."""
    fresh: Count = 8
    """Conversations whose lengths are the measure."""
    best: Count = 10
    """Candidates of which one is drawn."""
    apart: Share = 0.25
    """Normalised edit distance up to which a node is too near to an expanded one."""
    merged: Share = 0.1
    """Edit distance over the length plus one up to which a turn is its sibling."""

    @field_validator("of", mode="before")
    @classmethod
    def read_of(cls, of: Any) -> Any:
        """Settings without a kind are those of a conversation."""
        return {"kind": "dialogue", **of} if isinstance(of, Mapping) else of

    @field_validator("of")
    @classmethod
    def check_of(cls, of: Rollout) -> Rollout:
        """Refuse what is not written by two agents by turns."""
        if not isinstance(of, TwoAgents):
            raise PydanticCustomError("of", "a tree is of conversations or of games: kind dialogue or game")
        return of

    @property
    def _of(self) -> TwoAgents:
        assert isinstance(self.of, TwoAgents), "checked"
        return self.of

    @property
    def roles(self) -> frozenset[str]:
        """The second agent's, if it has its own."""
        return self.of.roles

    @property
    def helpers(self) -> frozenset[str]:
        """The same."""
        return self.of.helpers

    def check(self, tasks: Sequence[Task]) -> None:
        """The tasks must be those of the conversations."""
        self.of.check(tasks)

    @property
    def temperature(self) -> float:
        """That of the conversations."""
        return self.of.temperature

    def held_out(self, n: int, sampling: Sampling) -> Rollout | None:
        """A conversation without a search."""
        return self.of.held_out(n, sampling)

    async def collect_scored(self, task: Task, samplers: Mapping[str, Sampler], scorer: Scorer) -> list[Group]:
        """A group for each node with several children; conversations that could not be scored are one of their own."""
        sampler = sampler_of(self._of.role, samplers)
        place = int(sampler.bind("place").uniform() * 2) if self._of.swapped else 0

        def talk(*key: int | str) -> Talk:
            return self._of.begun(task, samplers, key, place)

        fresh = await asyncio.gather(*(talk("fresh", i).finish() for i in range(self.fresh)))
        whole = [own for own in fresh if not own.failure] or fresh
        longest = float(np.quantile([sum(map(len, own.turns)) for own in whole], 0.85)) + 1.0
        root, failed, number = Node(), list[Trajectory](), 0
        draws = sampler.bind("choices")
        for search in range(self.searches):
            node = self._chosen(root, draws)
            if node is None:
                break
            node.expanded = True
            before = node.turns()
            begun = [talk("tree", search, i).finish_after(before) for i in range(self.rollouts)]
            for own in await asyncio.gather(*begun):
                learned = rollouts_of(own, number, longest, both=self._of.rollouts == "both")[:1]
                number += 1
                if not learned:
                    continue
                [seen] = (await scorer(Group(key=task.key, trajectories=tuple(learned)))).trajectories
                if seen.score is None or seen.score.status == "error":
                    failed.append(seen)
                else:
                    self._add(node, own.turns[len(before) :], seen.score)
        mine = [node for node in root.below() if node.children and node.children[0].author == self._of.role]
        kept = [node for node in mine if len(node.children) > 1]
        if not kept and not failed:  # a single child in every state; shown as it is, and no pair
            kept = mine[:1]
        shown = [(node, await talk("shown").replay(node.turns())) for node in kept]
        groups = [_group(own, node, longest) for node, own in shown if not own.failure]
        if not groups and not failed:
            return [Group(key=task.key, trajectories=())]
        return [*groups, *([Group(key=f"{task.key}/failed", trajectories=tuple(failed))] if failed else [])]

    def _chosen(self, root: "Node", draws: Sampler) -> "Node | None":
        """The node to expand; None where no candidate is left."""
        nodes = root.below()
        expanded = [node for node in nodes if node.expanded]
        if not expanded:
            return root
        found = [
            node
            for node in nodes
            if node.children
            and node.children[0].children
            and all(apart(node.text, other.text) > self.apart for other in expanded)
        ]
        if not found:
            return None
        found = sorted(found, key=lambda node: -node.value)[: self.best]
        weight = np.exp(np.array([node.value for node in found]) - found[0].value)
        place = int(np.searchsorted(np.cumsum(weight), draws.uniform() * weight.sum(), side="right"))
        return found[min(place, len(found) - 1)]

    def _add(self, node: "Node", turns: Sequence[Segment], score: Score) -> None:
        """Put the turns of a conversation below a node, and its reward into all nodes of its path."""
        for turn in turns:
            node = self._child(node, turn)
        for own in node.path():
            own.scores.append(score)

    def _child(self, node: "Node", turn: Segment) -> "Node":
        for child in node.children:
            if edit_distance(turn.text, child.text) / (len(turn.text) + 1) <= self.merged:
                return child
        child = Node(turn=turn, parent=node, name=f"{node.name}.{len(node.children)}".strip("."))
        node.children.append(child)
        return child


@dataclass(eq=False, kw_only=True)
class Node:
    """A turn, or the root."""

    turn: Segment | None = None
    parent: "Node | None" = None
    name: str = ""
    children: "list[Node]" = field(default_factory=list)
    scores: list[Score] = field(default_factory=list)
    """Of the conversations through it."""
    expanded: bool = False

    @property
    def text(self) -> str:
        """What was written; empty at the root."""
        return "" if self.turn is None else self.turn.text

    @property
    def value(self) -> float:
        """Mean reward of the conversations through it."""
        return math.fsum(score.value for score in self.scores) / max(len(self.scores), 1)

    @property
    def author(self) -> str:
        """Role of the model that wrote it; empty at the root."""
        return "" if self.turn is None else self.turn.actor

    def turns(self) -> list[Segment]:
        """All turns from the root to it."""
        return [own.turn for own in self.path() if own.turn is not None]

    def path(self) -> "list[Node]":
        """From the root to it."""
        return [*(self.parent.path() if self.parent else []), self]

    def below(self) -> "list[Node]":
        """The node and its descendants, parents first."""
        return [self, *(node for child in self.children for node in child.below())]


def apart(a: str, b: str) -> float:
    """Edit distance over the length of the longer text; 0 for two empty ones."""
    return edit_distance(a, b) / max(len(a), len(b), 1)


def _group(talk: Talk, node: Node, longest: float) -> Group:
    """The children of a node, as turns with their values; the conversation is where they are next."""
    prompt = Segment(
        actor="prompt",
        token_ids=talk.context(),
        turn=len(talk.turns),
        text="".join(segment.text for segment in talk.views[talk.speaker]),
    )
    found = []
    for place, child in enumerate(node.children):
        assert child.turn is not None, "children are turns"
        solved = any(score.status == "ok" for score in child.scores)
        score = Score(
            value=child.value,
            status="ok" if solved else "wrong",
            explanation=f"mean of {len(child.scores)} conversations",
            parts={"first": child.scores[0], "last": child.scores[-1]},
        )
        found.append(
            Trajectory(
                task=talk.task,
                segments=(prompt, replace(child.turn, turn=prompt.turn)),
                stop_reason="stop",
                sample=place,
                facts=(talk.fact(place, longest),),
                score=score,
            )
        )
    return Group(key="/".join([talk.task.key, *([node.name] if node.name else [])]), trajectories=tuple(found))
