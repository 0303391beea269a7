"""A judge's votes: several replies score the same candidates, and the candidate with the most points is the answer.

Source: SPCT (DeepSeek-GRM), arXiv:2504.02495, section on inference, from technical notes. With S_ij the score of
candidate i in reply j,

    sum         S*_i = sum_j S_ij, over all replies
    majority    S*_i = number of replies in which i alone has the most points

With a `meta_role`, a model that scores replies by whether they are right (`stages/outcome_model`), only the `kept`
replies with the highest scores vote, half of them by default; all of them is the plain vote. The answer is the reply
whose best candidate has the most points of all, and its value are these points. A reply without scores has no vote and
no value: it is skipped, and never counts as zeros. ``ties`` in the statistics is 1 where two candidates share the most
points, so that the first reply decided.

Differs: a reply must be the answer, so that a candidate that wins the sum and that no reply has alone at the top, is
not found; ``unnamed`` is 1 then.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Annotated, Literal, Self

import numpy as np
from pydantic import Field, PositiveInt, model_validator
from pydantic_core import PydanticCustomError

from posttrain.component import frozen
from posttrain.components.rollouts import Scorer
from posttrain.components.search import Found, Search
from posttrain.components.search._found import Values, found, sampler_of
from posttrain.engines import Sampler, Sampling, answers
from posttrain.grading.rankings import read_ranking
from posttrain.signals import Signal
from posttrain.types import Task


@frozen
class ScoreVotes(Search):
    """Samples `n` replies of a judge and adds up their scores."""

    n: Annotated[int, Field(ge=1, le=1024)] = 8
    """Replies to each task."""
    count: Literal["sum", "majority"] = "sum"
    """What is added up: scores, or replies."""
    meta_role: str | None = None
    """The model with a reward head that decides which replies vote; None has all vote."""
    kept: PositiveInt | None = None
    """Replies that vote with a meta model; None is half of `n`, rounded up."""
    sampling: Sampling = Sampling()
    """How each reply is sampled."""
    role: str = "policy"
    """The judge."""

    @model_validator(mode="after")
    def check_kept(self) -> Self:
        """Refuse more votes than replies, and a number of votes that nothing decides."""
        if self.kept is not None and (self.meta_role is None or self.kept > self.n):
            context = {"kept": self.kept, "n": self.n}
            text = "kept is {kept} of n={n} replies: it is at most n, and needs a meta_role"
            raise PydanticCustomError("kept", text, context)
        return self

    @property
    def roles(self) -> frozenset[str]:
        """The judge and the meta model."""
        return frozenset(filter(None, (self.role, self.meta_role)))

    @property
    def needs(self) -> frozenset[Signal]:
        """The meta model's scores of replies."""
        return frozenset() if self.meta_role is None else frozenset({Signal("score", of=self.meta_role)})

    @property
    def uses_rewards(self) -> bool:
        """False."""
        return False

    @property
    def temperature(self) -> float:
        """Sampling temperature; log-probabilities of greedy tokens are at temperature 1."""
        return self.sampling.temperature or 1.0

    async def search(self, task: Task, samplers: Mapping[str, Sampler], scorer: Scorer | None = None) -> Found:
        """Sample replies, and value each by the points of the candidate that it has at the top."""
        sampler = sampler_of(self.role, samplers)
        prompt = sampler.prompt(task)
        completions = await sampler.sample(prompt.token_ids, self.n, self.sampling)
        replies = answers(task, prompt, completions, self.role)
        scores = [read_ranking(t.completion).scores for t in replies]
        voters = list(range(self.n))
        if self.meta_role is not None:
            meta = await Values(sampler_of(self.meta_role, samplers), clipped=False)([t.token_ids for t in replies])
            voters = kept_by(meta, scores, self.kept or -(-self.n // 2))
        points = points_of([scores[i] for i in voters], self.count)
        values = [points.get(_top(own) or "", float("nan")) for own in scores]
        most = max(points.values(), default=0.0)
        winners = [name for name, x in points.items() if x == most]
        result = found(replies, values)
        named = any(_top(own) in winners for own in scores)
        statistics = {
            **result.statistics,
            "unreadable": sum(not own for own in scores) / self.n,
            "ties": float(len(winners) > 1),
            "unnamed": float(bool(winners) and not named),
        }
        return Found(trajectories=replies, values=result.values, statistics=statistics)


def kept_by(meta: Sequence[float], scores: Sequence[Mapping[str, float]], kept: int) -> list[int]:
    """The readable replies with the highest meta scores, of equals the first."""
    readable = [i for i, own in enumerate(scores) if own and np.isfinite(meta[i])]
    return sorted(sorted(readable, key=lambda i: -meta[i])[:kept])


def points_of(scores: Sequence[Mapping[str, float]], count: str) -> dict[str, float]:
    """Points of each candidate, over the replies that have scores."""
    if count == "majority":
        tops = Counter(name for name in map(_top, scores) if name is not None)
        return {name: float(number) for name, number in tops.items()}
    names = sorted({name for own in scores for name in own})
    return {name: float(sum(own.get(name, 0.0) for own in scores)) for name in names}


def _top(scores: Mapping[str, float]) -> str | None:
    """The candidate that alone has the most points; None where none does."""
    most = max(scores.values(), default=None)
    names = [name for name, x in scores.items() if x == most]
    return names[0] if len(names) == 1 else None
