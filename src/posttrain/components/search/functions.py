r"""Tree search that branches only between tagged steps: a grammar states which kinds of steps may come next.

Source: Reinforced Functional Token Tuning, Zhang et al. 2025, arXiv:2502.13389, and its release (sastpg/RFTT at
948f89ee: mcts_backbone.py, mcts_sampling.py). A node is a step, ``<step>47+35=82</step>``; its children are the kinds
of steps that the grammar allows after it, most probable first. The text of a step is sampled when a rollout first
reaches it, up to its closing tag; that of an answer, to the end. A rollout goes from the question

    to the first child that no rollout has visited, where there is one, else to the child with the highest
    Q / N + c sqrt(ln N_parent / N)

and from an unvisited child on by first children to an answer, or to the greatest depth. The leaf's value is added to
every node of its path. A path without an answer, or one that is no path of the grammar, has the value 0. `value_role`
none takes the reward; `votes` takes the share of all paths whose answer is the same.

With prompts in the grammar a model that does not know the tags is asked for each step by the prompt of its kind (the
first phase of the paper). Such paths have no trained tokens: they are texts to imitate.

Differs: a path that is found again counts in the statistics of the tree, and is one rollout; the release keeps all.
The probability of a kind is that of the whole opening tag, and kinds below `least` are left out, unless all are; the
release takes the kinds whose first token is among the twelve likeliest after ``<``, which hardly leaves one out.
Opening tags are chosen by the search, not sampled; they have their log-probability under the model. A step ends where
its closing tag does, also in the middle of a token; the next opening tag then continues the rest of the token.
"""

import asyncio
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Self

import numpy as np
from pydantic import Field, NonNegativeFloat, field_validator, model_validator
from pydantic_core import PydanticCustomError

from posttrain.component import frozen
from posttrain.components.rollouts import Scorer
from posttrain.components.search import Found, Search
from posttrain.components.search._found import Values, found, sampler_of, scored
from posttrain.components.search._nodes import Node
from posttrain.datasets.grammars import FUNCTIONS, Grammar
from posttrain.engines import Sampler, Sampling, sampled_segment
from posttrain.signals import Signal
from posttrain.types import Completion, Fact, FloatArray, IntArray, Segment, StopReason, Task, Trajectory


@dataclass(frozen=True, kw_only=True)
class Way(Fact):
    """The kinds of the steps of a rollout."""

    steps: tuple[str, ...]


@frozen
class Functions(Search):
    """Monte Carlo tree search over tagged steps."""

    rollouts: Annotated[int, Field(ge=1, le=1000)] = 16
    """Paths that are gone from the question to a leaf; equal ones count once among the results."""
    grammar: Grammar = FUNCTIONS
    """Kinds of steps and which may follow which, the greatest depth, and prompts, where the model needs them."""
    exploration: NonNegativeFloat = 2.0
    """c, in units of value."""
    least: Annotated[float, Field(ge=0.0, lt=1.0)] = 0.0
    """Least probability of a kind's opening tag; where no kind has it, all are children. 0 leaves none out."""
    value_role: str | None = None
    """The model with a reward head that gives the values of whole paths; None takes the reward, or votes."""
    votes: bool = False
    """Whether the share of paths with the same answer is the value, so that neither reward nor model is needed."""
    sampling: Sampling = Sampling()
    """How steps are sampled; `max_tokens` limits a whole path. Stop strings are not allowed."""
    role: str = "policy"
    """The model that is sampled from."""

    @field_validator("sampling")
    @classmethod
    def refuse_stop_strings(cls, sampling: Sampling) -> Sampling:
        """Refuse stop strings, as steps end with their closing tags."""
        if sampling.stop:
            raise PydanticCustomError("stop", "a step ends with its closing tag; leave stop strings out")
        return sampling

    @model_validator(mode="after")
    def check_value(self) -> Self:
        """Refuse two sources of values."""
        if self.votes and self.value_role is not None:
            raise PydanticCustomError("votes", "values are from votes or from a value model; set value_role=null")
        return self

    @property
    def roles(self) -> frozenset[str]:
        """The sampled model and the value model."""
        return frozenset(filter(None, (self.role, self.value_role)))

    @property
    def needs(self) -> frozenset[Signal]:
        """Log-probabilities of opening tags, and the value model's scores of paths."""
        own = frozenset() if self.grammar.prompts else frozenset({Signal("logp", of=self.role)})
        return own | (frozenset() if self.value_role is None else {Signal("score", of=self.value_role)})

    @property
    def uses_rewards(self) -> bool:
        """True without votes and without a value model."""
        return self.value_role is None and not self.votes

    @property
    def trains(self) -> bool:
        """False where prompts ask for the steps."""
        return not self.grammar.prompts

    @property
    def temperature(self) -> float:
        """Sampling temperature; log-probabilities of greedy tokens are at temperature 1."""
        return self.sampling.temperature or 1.0

    async def search(self, task: Task, samplers: Mapping[str, Sampler], scorer: Scorer | None = None) -> Found:
        """Go the given number of paths."""
        sampler = sampler_of(self.role, samplers)
        values = None if self.value_role is None else Values(sampler_of(self.value_role, samplers))
        root = Node(segments=(sampler.prompt(task),))
        paths: dict[Node, Trajectory] = {}
        answers: dict[Node, str | None] = {}
        again = 0
        for _ in range(self.rollouts):
            if not root.selectable:
                break
            leaf = await self._descend(root, task, sampler)
            if leaf in paths:
                again += 1
            else:
                paths[leaf] = _rollout(task, leaf, len(paths))
                answers[leaf] = self.grammar.read(leaf.text).answer
                if self.uses_rewards:
                    (paths[leaf],) = await scored(task, [paths[leaf]], scorer)
                leaf.own = await self._value(paths[leaf], values, list(answers.values()), answers[leaf])
            if math.isnan(leaf.own):
                leaf.close()
            else:
                leaf.back_up(leaf.own, 1)
        known = [leaf.own for leaf in paths]
        if self.votes:
            known = shares(list(answers.values()))
        nodes = list(root.below())
        return found(
            list(paths.values()),
            known,
            [node.state for node in nodes if node.children and node.visits],
            sampled_tokens=sum(len(node.segments[-1]) for node in nodes if node.stop is not None),
            nodes=len(nodes),
            written=sum(node.stop is not None for node in nodes),
            depth=max(len(node.way) for node in nodes),
            revisits=again,
            answered=sum(answer is not None for answer in answers.values()) / len(answers),
        )

    def bound(self, value: float, visits: int, parent_visits: int) -> float:
        """The upper confidence bound of a child that has been visited."""
        return value + self.exploration * math.sqrt(math.log(max(parent_visits, 1)) / visits)

    async def _value(
        self, rollout: Trajectory, values: Values | None, answers: Sequence[str | None], answer: str | None
    ) -> float:
        """The value of a new path; NaN where scoring failed. `answers` are those of all paths so far, its own last."""
        if self.votes:
            return shares(answers)[-1]
        if values is not None:
            (value,) = await values([rollout.token_ids])
        else:
            assert rollout.score is not None, "it has just been scored"
            value = rollout.score.value
        return value if answer is not None or math.isnan(value) else 0.0

    async def _descend(self, root: Node, task: Task, sampler: Sampler) -> Node:
        """Go down to a leaf: by the bound as far as all children were visited, then by first children."""
        node = root
        while node.children:
            open_ones = [child for child in node.children if child.selectable]
            fresh = [child for child in open_ones if not child.visits]
            visits = node.visits
            node = (
                fresh[0] if fresh else max(open_ones, key=lambda child: self.bound(child.value, child.visits, visits))
            )
            if fresh:
                break
        while True:
            if node is not root and node.stop is None:
                await self._write(node, task, sampler)
            if node.ended:
                return node
            if not node.children:
                node.children = await self._branch(node, task, sampler)
            node = next(child for child in node.children if child.selectable)

    async def _branch(self, node: Node, task: Task, sampler: Sampler) -> list[Node]:
        """The children of a node, most probable first; without prompts each has its opening tag."""
        kinds = self._continuing(node)
        if self.grammar.prompts:
            return [_child(node, i, kind) for i, kind in enumerate(kinds)]
        before = node.token_ids
        openings = [self._opening(node, kind, task, sampler) for kind in kinds]
        scored = await asyncio.gather(
            *(
                sampler.logp(
                    np.concatenate([before, ids]), temperature=self.temperature, vectors=node.segments[0].vectors
                )
                for ids in openings
            )
        )
        logps = [logp[len(logp) - len(ids) :] for logp, ids in zip(scored, openings, strict=True)]
        order = sorted(range(len(kinds)), key=lambda i: -float(logps[i].sum()))
        likely = [i for i in order if math.exp(float(logps[i].sum())) >= self.least] or order
        return [
            _child(node, place, kinds[i], self._tag_segment(node, openings[i], logps[i], sampler))
            for place, i in enumerate(likely)
        ]

    async def _write(self, node: Node, task: Task, sampler: Sampler) -> None:
        """Sample the text of a step, and tell whether its path ends there."""
        if self.grammar.prompts:
            await self._ask(node, task, sampler)
        else:
            ends, room = node.kind in self.grammar.ends, self._room(node, sampler)
            stop = () if ends else (f"</{node.kind}>",)
            sampling = replace(self.sampling, max_tokens=max(1, room), stop=stop)
            (completion,) = await sampler.sample(node.token_ids, 1, sampling, node.segments[0].vectors)
            before = node.segments
            if node.parent is not None and len(before) > len(node.parent.segments):  # its own opening tag
                before = (*before[:-1], replace(before[-1], version=completion.version))
            node.segments = (*before, self._body(node, completion, sampler))
            node.stop = completion.stop_reason
            node.ended = ends or f"</{node.kind}>" not in node.segments[-1].text
        if node.ended:
            return
        kinds = self._continuing(node)
        needed = [len(self._opening(node, kind, task, sampler)) for kind in kinds]
        if len(node.way) >= self.grammar.depth or not kinds or self._room(node, sampler) <= max(needed):
            node.ended, node.stop = True, "length"

    async def _ask(self, node: Node, task: Task, sampler: Sampler) -> None:
        """Ask for a step by its prompt, and put it into its tags."""
        plain = isinstance(task.prompt, str)
        problem = str(task.prompt if plain else task.prompt[-1]["content"])  # type: ignore[index]
        text = self.grammar.prompt(node.kind, problem, node.text)
        asked = sampler.encode(text if plain else ({"role": "user", "content": text},))
        room = min(self.sampling.max_tokens, sampler.context - len(asked))
        (completion,) = await sampler.sample(asked, 1, replace(self.sampling, max_tokens=max(1, room)))
        step = f"<{node.kind}>{completion.text.strip()}</{node.kind}>"
        ids = _encoded(step, task, sampler)
        node.segments = (*node.segments, Segment(actor=self.role, token_ids=ids, text=step, version=completion.version))
        node.stop = completion.stop_reason
        node.ended = node.kind in self.grammar.ends or node.stop == "length"

    def _room(self, node: Node, sampler: Sampler) -> int:
        """Tokens that a path may still have."""
        length, prompt = len(node.token_ids), len(node.segments[0])
        return min(self.sampling.max_tokens - (length - prompt), sampler.context - length)

    def _continuing(self, node: Node) -> list[str]:
        """Kinds that may follow a node, and whose opening tag goes on after what its last token has beyond its own."""
        over = self._over(node)
        return [kind for kind in self.grammar.allowed(node.kind or None) if f"<{kind}>".startswith(over)]

    def _over(self, node: Node) -> str:
        """What stands after the closing tag of a node, without space."""
        return node.text.rpartition(f"</{node.kind}>")[2].strip() if node.kind else ""

    def _opening(self, node: Node, kind: str, task: Task, sampler: Sampler) -> IntArray:
        """Ids of an opening tag, or of what is missing of it."""
        return _encoded(f"<{kind}>"[len(self._over(node)) :], task, sampler)

    def _tag_segment(self, node: Node, ids: IntArray, logp: FloatArray, sampler: Sampler) -> Segment:
        """An opening tag as a trained segment."""
        written = node.token_ids[len(node.segments[0]) :]
        text = sampler.decode(np.concatenate([written, ids]))[len(node.text) :]
        return Segment(
            actor=self.role,
            token_ids=ids,
            trained=True,
            logp=logp.astype(np.float32),
            state_key=node.name,
            text=text,
        )

    def _body(self, node: Node, completion: Completion, sampler: Sampler) -> Segment:
        """What was sampled after an opening tag; a closing tag that ended it is a part of the text."""
        ids = completion.token_ids
        text = sampler.decode(np.concatenate([node.token_ids[len(node.segments[0]) :], ids]))
        if completion.stop_reason == "stop" and node.kind in self.grammar.ends:
            text = text[: len(text) - (len(sampler.decode(ids)) - len(completion.text))]
        return replace(sampled_segment(completion, self.role), state_key=node.name, text=text[len(node.text) :])


def shares(answers: Sequence[str | None]) -> list[float]:
    """For each path the share of all paths with its answer; 0 without an answer."""
    counts = Counter(answers)
    return [0.0 if answer is None else counts[answer] / len(answers) for answer in answers]


def _encoded(text: str, task: Task, sampler: Sampler) -> IntArray:
    """Ids of a piece of a completion, without the end token."""
    end = sampler.encode_completion(task.prompt, "")
    ids = sampler.encode_completion(task.prompt, text)
    return ids[: len(ids) - len(end)]


def _child(node: Node, place: int, kind: str, opening: Segment | None = None) -> Node:
    """A child that is not written yet."""
    segments = node.segments if opening is None or not len(opening) else (*node.segments, opening)
    return Node(segments=segments, way=(*node.way, place), parent=node, kind=kind)


def _rollout(task: Task, leaf: Node, sample: int) -> Trajectory:
    """The path to a leaf as a trajectory."""
    kinds: list[str] = []
    node: Node | None = leaf
    while node is not None and node.kind:
        kinds.append(node.kind)
        node = node.parent
    stop: StopReason = leaf.stop or "length"
    return Trajectory(
        task=task, segments=leaf.segments, stop_reason=stop, sample=sample, facts=(Way(steps=tuple(reversed(kinds))),)
    )
