"""Completions that are drawn among allowed tokens only, and whose log-probabilities are those among them.

Source: OpenAGI (RLTF), arXiv:2304.04370, and its release (agiresearch/OpenAGI at 22190c5, generate_model_seq.py): a
trie of names of tools; first any tool, then those that take what the last one gives and were not used, or the end.
Which tokens were allowed is kept with the completion (`Segment.allowed`), so that the learner computes probabilities of
the same distribution. `choices` is a column of whole texts, one of which is written; `schema` a column of
JSON schemas, of which a value is written; without both, texts are plans of typed tools
(`posttrain.datasets.tool_chains`).

With probability `epsilon` a completion is drawn, else it is the likeliest one, token by token; `epsilon` goes from its
first to its second value, in equal factors over the stage. Held-out tasks are answered under the same constraint.

Differs: the release draws one of 30 candidates of a beam search with gradients; here it is drawn from the model.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated

from pydantic import Field, PositiveInt

from posttrain.component import frozen, nearest
from posttrain.components.rollouts import Rollout
from posttrain.components.rollouts._allowed import Allowed, masked_sampler, schema_of
from posttrain.components.rollouts._segments import answers, prompt_segment, sampler_of
from posttrain.datasets.tool_chains import follow
from posttrain.engines import Sampler, Sampling, TokenSampler, Watch
from posttrain.errors import UserError
from posttrain.types import Group, Task, Trajectory

Share = Annotated[float, Field(gt=0.0, le=1.0)]


@frozen
class Constrained(Rollout):
    """Samples `n` completions of allowed tokens."""

    n: PositiveInt = 8
    """Completions per task."""
    sampling: Sampling = Sampling()
    """How each completion is sampled."""
    choices: str | None = None
    """Column of a task with the texts that a completion may be; None allows plans of typed tools."""
    schema: str | None = None
    """Column of a task with a JSON schema, as an object or as text; a completion is a value of it."""
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
        """Raise `UserError` for a task without choices or a schema."""
        if self.choices is not None and self.schema is not None:
            raise UserError(f"rollout.choices is '{self.choices}' and rollout.schema '{self.schema}'; set one of them")
        for task in tasks:
            if self.schema is not None:
                schema_of(task, self.schema)
            if self.choices is not None and not _texts(task, self.choices):
                raise UserError(
                    f"task {task.key} has no list of texts in its column '{self.choices}'; "
                    f"{nearest(self.choices, task.fields)}"
                )

    async def collect(self, task: Task, samplers: Mapping[str, Sampler]) -> list[Group]:
        """One group of `n` trajectories."""
        sampler = sampler_of(self.role, samplers)
        sampler = masked_sampler(self.role, sampler)
        prompt = prompt_segment(task, sampler)
        allowed = self._allowed(task, sampler)
        watch = Watch() if allowed is None else allowed.watch
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
                trajectories=tuple(self._noted(t, allowed) for t in answers(task, prompt, found, self.role)),
            )
        ]

    def _noted(self, trajectory: Trajectory, allowed: Allowed | None) -> Trajectory:
        """With the tokens that were allowed at each place."""
        if allowed is None:
            return trajectory
        prompt, own = trajectory.segments
        return replace(trajectory, segments=(prompt, allowed.noted(own)))

    def _allowed(self, task: Task, sampler: TokenSampler) -> Allowed | None:
        """What may be written for a task, anything where it has no choices and no schema."""
        if self.schema is not None:
            if task.fields.get(self.schema) is None:  # refused by `check`; other tasks may be answered freely
                return None
            return Allowed.of_schema(schema_of(task, self.schema), sampler)
        if self.choices is None:
            return Allowed.of_pieces(follow, sampler, "plans")
        texts = _texts(task, self.choices)
        return Allowed.of_texts(texts, sampler) if texts else None


def _texts(task: Task, column: str) -> tuple[str, ...]:
    """The texts in a column; none where it is no list of texts."""
    given = task.fields.get(column)
    texts = tuple(given) if isinstance(given, list | tuple) else ()
    return texts if all(isinstance(text, str) and text for text in texts) else ()
