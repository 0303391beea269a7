"""Completions that are drawn among allowed tokens only, and whose log-probabilities are those among them.

Source: OpenAGI (RLTF), arXiv:2304.04370, and its release (agiresearch/OpenAGI at 22190c5, generate_model_seq.py): a
trie of names of tools; first any tool, then those that take what the last one gives and were not used, or the end.
Which tokens were allowed is kept with the completion (`Segment.allowed`), so that the learner computes probabilities of
the same distribution. `choices` is a column of whole texts, one of which is written; without it texts are plans of
typed tools (`posttrain.datasets.tool_chains`).

With probability `epsilon` a completion is drawn, else it is the likeliest one, token by token; `epsilon` goes from its
first to its second value, in equal factors over the stage. Held-out tasks are answered under the same constraint.

Differs: the release draws one of 30 candidates of a beam search with gradients; here it is drawn from the model.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, cast

from pydantic import Field, PositiveInt

from posttrain.component import frozen, nearest
from posttrain.components.rollouts import Rollout
from posttrain.components.rollouts._segments import answers, prompt_segment, sampler_of
from posttrain.datasets.tool_chains import follow
from posttrain.engines import Sampler, Sampling, TokenSampler, Watch
from posttrain.engines._pieces import Pieces, one_of
from posttrain.errors import UserError
from posttrain.types import Group, Task, Trajectory

Share = Annotated[float, Field(gt=0.0, le=1.0)]
_KEPT: dict[object, Pieces] = {}
"""The last pieces, with their masks."""
_MOST = 8


@frozen
class Constrained(Rollout):
    """Samples `n` completions of allowed tokens."""

    n: PositiveInt = 8
    """Completions per task."""
    sampling: Sampling = Sampling()
    """How each completion is sampled."""
    choices: str | None = None
    """Column of a task with the texts that a completion may be; None allows plans of typed tools."""
    epsilon: tuple[Share, Share] = (1.0, 1.0)
    """Probability that a completion is drawn, at the start and at the end of the stage; 1 draws all."""
    role: str = "policy"
    """The model that is sampled from and trained."""

    @property
    def group_size(self) -> int:
        """The setting `n`."""
        return self.n

    @property
    def temperature(self) -> float:
        """Sampling temperature; log-probabilities of greedy tokens are at temperature 1."""
        return self.sampling.temperature or 1.0

    @property
    def follows_progress(self) -> bool:
        """Whether `epsilon` changes."""
        return self.epsilon[0] != self.epsilon[1]

    def at(self, progress: float) -> "Constrained":
        """With the epsilon of this progress."""
        first, last = self.epsilon
        now = min(1.0, first * (last / first) ** progress)
        return replace(self, epsilon=(now, now))

    def held_out(self, n: int, sampling: Sampling) -> "Constrained":
        """`n` completions under the same constraint."""
        return replace(self, n=n, sampling=sampling, epsilon=(1.0, 1.0))

    def check(self, tasks: Sequence[Task]) -> None:
        """Raise `UserError` for a task without choices."""
        for task in tasks:
            if self.choices is not None and not _texts(task, self.choices):
                raise UserError(
                    f"task {task.key} has no list of texts in its column '{self.choices}'; "
                    f"{nearest(self.choices, task.fields)}"
                )

    async def collect(self, task: Task, samplers: Mapping[str, Sampler]) -> list[Group]:
        """One group of `n` trajectories."""
        sampler = sampler_of(self.role, samplers)
        if not hasattr(sampler, "watched"):
            raise UserError(
                f"the model in the role '{self.role}' is behind an endpoint or an engine that takes no masks; name a "
                "local model, or take rollout=independent"
            )
        prompt = prompt_segment(task, sampler)
        sampler = cast(TokenSampler, sampler)
        pieces = self._pieces(task, sampler)
        watch = Watch() if pieces is None else Watch(matcher=pieces.matcher, masked=True)
        draws = sum(self.epsilon[0] == 1.0 or sampler.uniform() < self.epsilon[0] for _ in range(self.n))
        likeliest = replace(self.sampling, temperature=0.0)
        found = [
            completion
            for count, sampling in ((draws, self.sampling), (self.n - draws, likeliest))
            if count
            for completion in await sampler.watched(prompt.token_ids, count, sampling, watch)
        ]
        return [
            Group(
                key=task.key,
                trajectories=tuple(self._noted(t, pieces) for t in answers(task, prompt, found, self.role)),
            )
        ]

    def _noted(self, trajectory: Trajectory, pieces: Pieces | None) -> Trajectory:
        """With the tokens that were allowed at each place."""
        if pieces is None:
            return trajectory
        prompt, own = trajectory.segments
        return replace(trajectory, segments=(prompt, replace(own, allowed=pieces.allowed_of(own.token_ids))))

    def _pieces(self, task: Task, sampler: TokenSampler) -> Pieces | None:
        """What may be written for a task, anything where it has no choices; the last ones are kept with their masks."""
        texts = None if self.choices is None else _texts(task, self.choices)
        if texts == ():
            return None
        content, ends, size = sampler.tokenizer_file()
        key = (hash(content), ends, size, texts)
        if key not in _KEPT:
            made = Pieces.of(follow if texts is None else one_of(texts), sampler)
            while len(_KEPT) >= _MOST:
                _KEPT.pop(next(iter(_KEPT)))
            _KEPT[key] = made
        return _KEPT[key]


def _texts(task: Task, column: str) -> tuple[str, ...]:
    """The texts in a column; none where it is no list of texts."""
    given = task.fields.get(column)
    texts = tuple(given) if isinstance(given, list | tuple) else ()
    return texts if all(isinstance(text, str) and text for text in texts) else ()
