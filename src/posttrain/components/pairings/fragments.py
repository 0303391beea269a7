r"""Pairs of fragments at the nodes of a search tree: the same prefix, and the fragment of most and of least value.

Source: iTool, arXiv:2501.09766, and its released search (mcts_vllm.py, utils.py, run_mcts_dpo.sh). A sample is cut
after ". ", ", ", "=" or "(": each fragment is a node, so that a sample is a chain, and what is below the depth limit is
one node. Each simulation

- descends from the root while a node has more than `actions` children, to the largest
  value / (visits + 1) + c p sqrt(log(parent's visits) / (visits + 1)), with p the geometric mean of the probabilities
  of the fragment's tokens;
- samples `actions` continuations there, whose fragments begin with a fast value: .1 where fragment and reference agree
  on containing the closing text, else -.1, plus the share of common words less .5; a blank fragment 0;
- follows the children of the largest value, samples the rest once if the answer has not ended there, and grades it:
  (P(A) + .1 P(B) - P(C) - 2 P(D)) / 4 by a judge who has the reference;
- adds the grade to the value of each node on the way, so that values are sums.

At each node with two children or more the best and the worst are a pair, unless they differ by less than `gap`, the
best is below `least`, or their words are the same. Chosen and rejected end with their fragments, without an end token
unless both answers end there.

Differs: a cut is at the end of the token that completes it, and texts are kept as sampled, where the release joins
fragments by spaces. Equal fragments are one node. There is no penalty of repetitions. Without a judge the grade is .25
for a correct answer and -.25 for others, by the reward. The reference is the first demonstration, or else the answer.
The rollouts of the selection are in no pair (``n: 1`` samples the fewest); a task none of which could be scored has no
tree.
"""

import asyncio
import math
from dataclasses import dataclass, field, replace
from typing import Annotated, Final

import numpy as np
from pydantic import Field, FiniteFloat, NonNegativeFloat

from posttrain.component import frozen
from posttrain.components.pairings import NOTHING_SCORED, Paired, Pairing, Rollouts
from posttrain.datasets.templates import fill, marked, question_of
from posttrain.engines import Sampler, Sampling, sampler_of
from posttrain.types import Completion, FloatArray, Group, IntArray, Preference, Segment, Trajectory

GRADES: Final = {"A": 1.0, "B": 0.1, "C": -1.0, "D": -2.0}
AGREES: Final = 0.1
JUDGE: Final = (
    "{question}\n\nThe reference answer is\n{reference}\n\nAn answer is\n{answer}\n\nGrade it: A same, B minor "
    "differences, C major differences, D wrong.\nGrade: "
)


@dataclass(kw_only=True, eq=False)
class Node:
    """A fragment after a prefix."""

    ids: IntArray
    """Of the whole prefix, the fragment included."""
    text: str = ""
    """Of the whole prefix."""
    fragment: str = ""
    prior: float = 1.0
    value: float = 0.0
    """Fast value, and the sum of the grades of simulations through it."""
    visits: int = 0
    ended: bool = False
    children: "list[Node]" = field(default_factory=list)


@frozen
class Growth:
    """How the tree grows."""

    actions: Annotated[int, Field(ge=2, le=64)] = 3
    """Samples of an expansion (3 in the released script)."""
    simulations: Annotated[int, Field(ge=1, le=1000)] = 5
    """Simulations of a task (5)."""
    depth: Annotated[int, Field(ge=1, le=100)] = 3
    """Most fragments on a way; the last one is all the rest (3)."""
    exploration: NonNegativeFloat = 1.0
    """c (1)."""


@frozen
class Cuts:
    """Where samples are cut."""

    after: Annotated[tuple[Annotated[str, Field(min_length=1)], ...], Field(min_length=1)] = (". ", ", ", "=", "(")
    """Texts after which a piece ends."""
    pieces: Annotated[int, Field(ge=1, le=100)] = 1
    """Pieces of a fragment."""
    closing: str = ")]"
    """What fragment and reference must both contain, or both lack."""


@frozen
class Judge:
    """Who grades answers, in place of the reward."""

    role: str = "policy"
    """The model; ``policy`` is the one that is searched, as in the release."""
    prompt: str = JUDGE
    """With ``{question}``, ``{reference}`` and ``{answer}``; the next token is a letter."""


@frozen
class Fragments(Pairing):
    """Searches a tree of fragments for every task, and pairs siblings."""

    growth: Growth = Growth()
    """How the tree grows."""
    cuts: Cuts = Cuts()
    """Where samples are cut."""
    judge: Judge | None = None
    """Who grades answers; None grades by the reward."""
    gap: NonNegativeFloat = 0.1
    """Smallest difference of the values of a pair."""
    least: FiniteFloat = -0.3
    """Smallest value of a chosen fragment."""
    alike: Annotated[float, Field(ge=0.0, le=1.0)] = 0.95
    """Share of common words above which fragments are no pair."""
    sampling: Sampling = Sampling(max_tokens=50, temperature=1.5)
    """How fragments are sampled; `max_tokens` limits the whole answer."""

    @property
    def roles(self) -> frozenset[str]:
        """The judge, if there is one."""
        return frozenset({self.judge.role} - {"policy"}) if self.judge is not None else frozenset()

    @property
    def gives(self) -> frozenset[str]:
        """The difference of the values."""
        return frozenset({"margin"})

    async def pair(self, rollouts: Rollouts) -> Paired:
        """Search, and pair the children of each node."""
        if all(t.score is None or t.score.status == "error" for t in rollouts.trajectories):
            return Paired(reason=NOTHING_SCORED)
        search = _Search(self.growth, self.cuts, self.judge, self.sampling, rollouts)
        failed = 0
        for number in range(self.growth.simulations):
            failed += not await search.simulate(number)
        if failed == self.growth.simulations:
            return Paired(reason=NOTHING_SCORED, rollouts=search.sampled)
        pairs = tuple(self._pairs(search.root))
        return Paired(pairs=pairs, reason="" if pairs else "no fragments that differ enough", rollouts=search.sampled)

    def _pairs(self, node: Node) -> list[Preference]:
        """Those of a node, then those of its children."""
        found = []
        if len(node.children) >= 2:
            best, worst = (pick(node.children, key=lambda child: child.value) for pick in (max, min))
            margin = best.value - worst.value
            same = shared_words(best.fragment, worst.fragment) > self.alike
            if (
                margin >= self.gap
                and best.value >= self.least
                and not same
                and best.text.strip()
                and worst.text.strip()
            ):
                fields = {
                    "rule": self.kind,
                    "margin": margin,
                    "origin": [{"writer": "policy", "value": best.value}, {"writer": "policy", "value": worst.value}],
                    **({} if best.ended and worst.ended else {"cut": "both"}),
                }
                found.append(Preference(chosen=best.text, rejected=worst.text, fields=fields))
        return [*found, *(pair for child in node.children for pair in self._pairs(child))]


class _Search:
    """The search of one task."""

    def __init__(self, growth: Growth, cuts: Cuts, judge: Judge | None, sampling: Sampling, rollouts: Rollouts) -> None:
        self.growth, self.cuts, self.judge, self.sampling, self.rollouts = growth, cuts, judge, sampling, rollouts
        self.prompt = rollouts.sampler.prompt(rollouts.task)
        self.reference = next(iter(rollouts.task.demonstrations), rollouts.task.answer or "")
        self.root = Node(ids=np.zeros(0, np.int64))
        self.sampled = 0

    async def simulate(self, number: int) -> bool:
        """Descend, expand, follow the best values, grade and add; False where the answer could not be graded."""
        way = [self.root]
        while len(way[-1].children) > self.growth.actions:
            way.append(chosen_child(way[-1], self.growth.exploration))
        if not way[-1].ended:
            await self._expand(way[-1], len(way) - 1, number)
        while way[-1].children:
            way.append(max(way[-1].children, key=lambda child: child.value))
        grade = await self._grade(way[-1], number)
        if grade is None:
            return False
        for node in way:
            node.value += grade
            node.visits += 1
        return True

    async def _written(self, node: Node, n: int, *key: int | str) -> list[Completion]:
        """Continuations of a prefix; none where there is no room."""
        sampler = self.rollouts.sampler
        before = np.concatenate([self.prompt.token_ids, node.ids])
        room = min(self.sampling.max_tokens - len(node.ids), sampler.context - len(before))
        if room < 1:
            return []
        self.sampled += n
        sampling = replace(self.sampling, max_tokens=room)
        return await sampler.bind("fragments", *key).sample(before, n, sampling, self.prompt.vectors)

    async def _expand(self, node: Node, depth: int, number: int) -> None:
        """Add sampled chains below a node."""
        for made in await self._written(node, self.growth.actions, "expand", number):
            self._add(node, depth, made)

    def _add(self, node: Node, depth: int, made: Completion) -> None:
        """One sample as a chain of nodes; equal fragments are one."""
        sampler = self.rollouts.sampler
        begun, ids = len(node.ids), np.concatenate([node.ids, made.token_ids])
        ends = [begun + end for end in cut_ends(made, self.cuts.after, self.cuts.pieces, sampler)]
        room = max(self.growth.depth - depth, 1)
        ends = [*ends[: room - 1], len(ids)] if len(ends) > room else ends
        for last, end in zip([*(False for _ in ends[1:]), True], ends, strict=True):
            text = sampler.decode(ids[:end])
            same = next((child for child in node.children if child.text == text), None)
            if same is None:
                fragment = text[len(node.text) :]
                logp = np.asarray(made.logp)[len(node.ids) - begun : end - begun]
                same = Node(
                    ids=ids[:end],
                    text=text,
                    fragment=fragment,
                    prior=prior_of(logp),
                    value=fast_value(fragment, self.reference, self.cuts.closing),
                    ended=last and made.stop_reason != "length",
                )
                node.children.append(same)
            node = same

    async def _grade(self, node: Node, number: int) -> float | None:
        """The grade of an answer that goes on from a node; None where it has none."""
        own, stop = node.ids, "stop"
        if not node.ended:
            rest = await self._written(node, 1, "rest", number)
            own = np.concatenate([node.ids, rest[0].token_ids]) if rest else node.ids
            stop = rest[0].stop_reason if rest else "length"
        text = self.rollouts.sampler.decode(own)
        if self.judge is not None:
            return await self._graded_by(text, self.judge)
        segment = Segment(actor="policy", token_ids=own, logp=np.zeros(len(own), np.float32), trained=True, text=text)
        answer = Trajectory(
            task=self.rollouts.task,
            segments=(self.prompt, segment),
            stop_reason=stop,  # type: ignore[arg-type]
        )
        [scored] = await self.rollouts.scorer(Group(key=self.rollouts.task.key, trajectories=(answer,)))
        if scored.score is None or scored.score.status == "error":
            return None
        return (GRADES["A"] if scored.solved else GRADES["C"]) / len(GRADES)

    async def _graded_by(self, text: str, by: Judge) -> float:
        """The mean grade under the judge's probabilities of the four letters."""
        others = {**self.rollouts.samplers, "policy": self.rollouts.sampler}
        judge = sampler_of(by.role, others, "the fragments rule grades by")
        values = {"question": question_of(self.rollouts.task), "reference": self.reference, "answer": marked(text)}
        prompt = fill(by.prompt, values)
        before = judge.encode(prompt)
        letters = [judge.encode_completion(prompt, letter)[:1] for letter in GRADES]
        logp = await asyncio.gather(*(judge.logp(np.concatenate([before, letter])) for letter in letters))
        return graded([float(own[-1]) for own in logp])


def fast_value(fragment: str, reference: str, closing: str) -> float:
    """What a fragment's node begins with."""
    if not fragment.strip():
        return 0.0
    agrees = (closing in fragment) == (closing in reference)
    return (AGREES if agrees else -AGREES) + shared_words(fragment, reference) - 0.5


def chosen_child(node: Node, exploration: float) -> Node:
    """The child to descend to, the first of equals."""

    def bound(child: Node) -> float:
        seen = math.sqrt(math.log(max(node.visits, 1)) / (child.visits + 1))
        return child.value / (child.visits + 1) + exploration * child.prior * seen

    return max(node.children, key=bound)


def graded(logp_4: list[float]) -> float:
    """The mean grade, of log-probabilities of the four letters."""
    share_4 = np.exp(np.array(logp_4) - max(logp_4))
    return float(share_4 / share_4.sum() @ np.array(list(GRADES.values()))) / len(GRADES)


def prior_of(logp: FloatArray) -> float:
    """Geometric mean of the probabilities of a fragment's tokens; .1 without tokens."""
    return float(np.exp(np.mean(logp))) if len(logp) else 0.1


def shared_words(a: str, b: str) -> float:
    """Different words that two texts share, over those of the text that has fewer; 0 where one has none."""
    ours, theirs = set(a.split()), set(b.split())
    return len(ours & theirs) / min(len(ours), len(theirs)) if ours and theirs else 0.0


def cut_ends(made: Completion, cuts: tuple[str, ...], pieces: int, sampler: Sampler) -> list[int]:
    """Number of tokens up to the end of each fragment; the last one is the whole sample."""
    texts = [sampler.decode(made.token_ids[:k]) for k in range(len(made.token_ids) + 1)]
    count = [sum(text.count(cut) for cut in cuts) for text in texts]
    ends = [k for k in range(1, len(texts) - 1) if count[k] > count[k - 1] and texts[-1][len(texts[k]) :].strip()]
    return [*ends[pieces - 1 :: pieces], len(made.token_ids)]
