"""Explanations: likelihood of explanations written with the answer given, and of the answer after them.

Source: the two properties of Zhou et al. 2025 (ExPO), arXiv:2507.02834, for a task q with the answer a. An explanation
c, written with a given, should be (1) likelier under the model than an expert's text: log pi(c, a | q) per token,
compared with that of the task's demonstration; the paper reports about half the nats; and (2) useful: pi(a | q, c) is
higher than after the model's own text. The model's text ends with the marker, and the correct answer follows.

Differs: implemented from notes on the paper. Texts without the marker are left out of both numbers, and tasks without a
demonstration out of the first.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Final

import numpy as np
from pydantic import AfterValidator, Field

from posttrain.component import frozen
from posttrain.components.diagnostics import Diagnostic, Finding, Subject
from posttrain.components.tasks import Tasks
from posttrain.datasets.templates import EXPLAIN, check_revealing, prompt_from
from posttrain.engines import Sampler, Sampling, Server, wait_for
from posttrain.errors import UserError
from posttrain.statistics.intervals import mean
from posttrain.types import FloatArray, IntArray, Task

ROWS: Final = (118,)


@frozen
class Explanations(Diagnostic):
    """Likelihood of explanations, and of the answer after them."""

    subjects: ClassVar[tuple[str, ...]] = ("model",)

    tasks: Tasks
    """Tasks with answers, and with demonstrations as the expert's texts."""
    request: Annotated[str, AfterValidator(check_revealing)] = EXPLAIN
    """Prompt of an explanation. Placeholders: question, answer."""
    marker: Annotated[str, Field(min_length=1)] = "####"
    """Text before the final answer."""
    sampling: Sampling = Sampling()
    """Sampling of both texts."""

    def examine(self, *subjects: Subject) -> Finding:
        """Sample two texts for each task, and compute their likelihood and that of the answer."""
        from posttrain.components.diagnostics._likelihoods import token_logps

        tasks = self.tasks.load()
        without = [task.key for task in tasks if task.answer is None]
        if without:
            raise UserError(
                f"{len(without)} of {len(tasks)} tasks have no answer to be explained; the first is {without[0]}"
            )
        [subject] = subjects
        policy = subject.load()
        texts = wait_for(self._write_all(subject.serve(policy), tasks))
        places = [(i, name) for i, own in enumerate(texts) for name in own]
        logps = token_logps(policy, [(texts[i][name].token_ids, texts[i][name].prompt) for i, name in places])
        rows: list[dict[str, FloatArray]] = [{} for _ in tasks]
        for (i, name), logp_T in zip(places, logps, strict=True):
            rows[i][name] = logp_T
        return _finding(
            [
                {name: _Likelihood.of(logp_T, texts[i][name].end) for name, logp_T in row.items()}
                for i, row in enumerate(rows)
            ]
        )

    async def _write_all(self, server: Server, tasks: Sequence[Task]) -> "list[dict[str, _Text]]":
        return list(await asyncio.gather(*(self._write(server, task) for task in tasks)))

    async def _write(self, server: Server, task: Task) -> "dict[str, _Text]":
        """The texts of a task after its prompt, by author."""
        sampler = server.bind("explanations", task.key)
        prompt_ids = sampler.encode(task.prompt)
        end_ids = sampler.encode_completion(task.prompt, f" {task.answer}")
        shown = prompt_from(task, self.request, {"answer": str(task.answer)})
        found = {}
        for name, prompted_ids in (("own", prompt_ids), ("explained", sampler.encode(shown))):
            written = await self._to_marker(sampler, prompted_ids)
            if written is not None:
                found[name] = _Text.of(prompt_ids, written, end_ids)
        if task.demonstrations:
            found["expert"] = _Text.of(prompt_ids, sampler.encode_completion(task.prompt, task.demonstrations[0]))
        return {name: text for name, text in found.items() if len(text.token_ids) <= sampler.context}

    async def _to_marker(self, sampler: Sampler, prompted_ids: IntArray) -> IntArray | None:
        """The text up to the marker; None where it does not contain it."""
        if len(prompted_ids) >= sampler.context:
            return None
        stops = replace(self.sampling, stop=(*self.sampling.stop, self.marker))
        (completion,) = await sampler.sample(prompted_ids, 1, stops)
        return completion.token_ids if sampler.decode(completion.token_ids).endswith(self.marker) else None


@dataclass(frozen=True, kw_only=True)
class _Text:
    """A text after a prompt, optionally with the answer at its end."""

    token_ids: IntArray
    prompt: int
    """Tokens of the prompt."""
    end: int = 0
    """Tokens of the answer at the end."""

    @classmethod
    def of(cls, prompt_ids: IntArray, written: IntArray, end_ids: IntArray | None = None) -> "_Text":
        parts = [prompt_ids, written] + ([] if end_ids is None else [end_ids])
        token_ids = np.concatenate(parts).astype(np.int64)
        return cls(token_ids=token_ids, prompt=len(prompt_ids), end=0 if end_ids is None else len(end_ids))


@dataclass(frozen=True, kw_only=True)
class _Likelihood:
    """Log-probabilities of a text and of the answer after it."""

    per_token: float
    """Mean log-probability of its tokens, the answer's and the end token among them, in nats."""
    answer: float
    """Log-probability of the answer, all of its tokens."""

    @classmethod
    def of(cls, logp_T: FloatArray, end: int) -> "_Likelihood":
        logp_T = logp_T.astype(np.float64)
        return cls(per_token=float(logp_T.mean()), answer=float(logp_T[len(logp_T) - end :].sum()))


def _finding(rows: Sequence[dict[str, _Likelihood]]) -> Finding:
    """Both properties, over the tasks that have what they compare."""
    likelier = [r["explained"].per_token - r["expert"].per_token for r in rows if {"explained", "expert"} <= r.keys()]
    leading = [r["explained"].answer - r["own"].answer for r in rows if {"explained", "own"} <= r.keys()]
    values: dict[str, Any] = {
        "tasks": len(rows),
        "written": {name: sum(name in row for row in rows) for name in ("own", "explained", "expert")},
        "nats_per_token": {
            name: _spread([-row[name].per_token for row in rows if name in row]) for name in ("explained", "expert")
        },
        "answer": {name: _spread([row[name].answer for row in rows if name in row]) for name in ("own", "explained")},
        "likelier": _spread(likelier),
        "leading": _spread(leading),
    }
    written = ", ".join(f"{name} {count}" for name, count in values["written"].items())
    lines = [
        f"{len(rows)} tasks; texts with the marker: {written}",
        "log-probability of a token of the explanation, above that of the expert's text: "
        f"{_worded(values['likelier'])}",
        "log-probability of the answer after the explanation, above that after its own text: "
        f"{_worded(values['leading'])}",
    ]
    return Finding(values=values, lines=lines)


def _spread(numbers: Sequence[float]) -> dict[str, Any] | None:
    """Mean with its interval; None for no number, and no interval for one."""
    if not numbers:
        return None
    found = mean(numbers)
    return {"mean": found.value, "interval": list(found.interval) if len(numbers) > 1 else None, "count": len(numbers)}


def _worded(spread: dict[str, Any] | None) -> str:
    """A mean in words."""
    if spread is None:
        return "not defined"
    low, high = spread["interval"] or (float("nan"), float("nan"))
    return f"{spread['mean']:+.3f} [{low:+.3f}, {high:+.3f}] nats ({spread['count']} tasks)"
