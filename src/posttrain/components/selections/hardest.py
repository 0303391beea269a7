"""The share of the tasks whose reference the policy finds least likely, of each of two classes, for another selection.

Source: iTool, arXiv:2501.09766, and its released miner: the perplexity of the reference answer under the current policy
for every row; rows are split by whether the reference has a call, and of each class the 30 % of the highest perplexity
are kept. Nothing is sampled to find what is hard: whether the policy fails there is not measured.

The reference is a task's first demonstration, or else its answer; a task without either is left out. `then` makes what
is trained on from the tasks that are kept, such as pairs; without it they are trained on as they are.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any

import numpy as np
from pydantic import Field

from posttrain.component import frozen
from posttrain.components.selections import Chosen, Selection
from posttrain.engines import Sampler, sampler_of
from posttrain.errors import UserError
from posttrain.types import Task


@frozen
class Hardest(Selection):
    """Keeps the tasks of the highest perplexity of each class."""

    share: Annotated[float, Field(gt=0.0, le=1.0)] = 0.3
    """Share of each class that is kept, rounded down; 0 tasks of a class that is too small."""
    marker: str = ")"
    """What a reference with a call contains; empty makes one class of all."""
    then: Selection | None = None
    """What is made of the tasks that are kept; None trains on them."""

    @property
    def roles(self) -> frozenset[str]:
        """The policy, and those of the other selection."""
        return frozenset({"policy"}) | (self.then.roles if self.then is not None else frozenset())

    @property
    def writes(self) -> frozenset[str]:
        """What the other selection writes."""
        return self.then.writes if self.then is not None else frozenset()

    @property
    def gives(self) -> frozenset[str]:
        """What the other selection gives."""
        return self.then.gives if self.then is not None else frozenset()

    async def measure(self, tasks: Sequence[Task], samplers: Mapping[str, Sampler]) -> Any:
        """The mean negative log-probability of each reference, the places that are kept, and what `then` measures."""
        sampler = sampler_of("policy", samplers, "the hardest selection measures references by")
        nll = [await _nll(task, sampler) for task in tasks]
        if all(value is None for value in nll):
            raise UserError(
                f"none of the {len(tasks)} tasks has a demonstration or an answer to measure; give a column named "
                "completion or answer, or leave the selection out"
            )
        kept = self.kept(tasks, nll)
        inner = await self.then.measure([tasks[i] for i in kept], samplers) if self.then is not None and kept else None
        return {"nll": nll, "kept": kept, "then": inner}

    def kept(self, tasks: Sequence[Task], nll: Sequence[float | None]) -> list[int]:
        """Places of the tasks that are kept, rising."""
        found: list[int] = []
        for called in (True, False):
            own = [i for i, v in enumerate(nll) if v is not None and (self.marker in _reference(tasks[i])) == called]
            order = sorted(own, key=lambda i: -(nll[i] or 0.0))  # stable: the first of equals
            found += order[: int(self.share * len(own))]
        return sorted(found)

    def choose(self, tasks: Sequence[Task], measured: Any) -> Chosen:
        """The tasks that are kept, or what is made of them."""
        own = [tasks[i] for i in measured["kept"]]
        known = [value for value in measured["nll"] if value is not None]
        inside = [measured["nll"][i] for i in measured["kept"]]
        summary = (
            f"{len(own)} of {len(tasks)} tasks, of perplexity {np.exp(np.mean(inside)) if inside else 0.0:.3g} where "
            f"all have {np.exp(np.mean(known)):.3g}"
        )
        if self.then is None or not own:
            return Chosen(tasks=own, summary=summary)
        made = self.then.choose(own, measured["then"])
        return Chosen(tasks=made.tasks, summary=f"{summary}; {made.summary}")


async def _nll(task: Task, sampler: Sampler) -> float | None:
    """Mean negative log-probability of the reference; None without one, or where it does not fit."""
    if not (text := _reference(task)):
        return None
    prompt = sampler.prompt(task)
    own = sampler.encode_completion(task.prompt, text)
    if not len(own) or len(prompt) + len(own) > sampler.context:
        return None
    logp = await sampler.logp(np.concatenate([prompt.token_ids, own]))
    return -float(np.mean(np.asarray(logp, np.float64)[-len(own) :]))


def _reference(task: Task) -> str:
    return next(iter(task.demonstrations), task.answer or "")
