"""Cold start: how far the answers that a model is to learn are from those that it writes.

Source: Raghavendra et al. 2025, arXiv:2502.11284, which explains by it why DPO from a base model fails on mathematics:
perplexity of the chosen answers under the model, and the share of its own answers that have their form. Where the form
is never sampled and the answers are unlikely, a few demonstrations come first (`posttrain plan`).

Differs: read in notes, not in the released code. An answer has the form where the verifier finds an answer in it.
"""

import asyncio
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Final

import numpy as np

from posttrain.component import frozen
from posttrain.components.diagnostics import Diagnostic, Finding, Subject
from posttrain.components.diagnostics._answers import answer_all, check_roles
from posttrain.components.rewards import Reward, RewardContext, scored
from posttrain.components.tasks import Tasks
from posttrain.engines import Sampling, Server, wait_for
from posttrain.errors import UserError
from posttrain.statistics.intervals import wilson
from posttrain.types import Score, Task

if TYPE_CHECKING:
    from posttrain.policies import Policy

ROWS: Final = (312,)


@frozen
class ColdStart(Diagnostic):
    """Perplexity of given answers, and the form and accuracy of the model's own ones."""

    subjects: ClassVar[tuple[str, ...]] = ("model",)

    tasks: Tasks
    """Tasks with preference pairs or demonstrations: the chosen completions, else the demonstrations, are measured."""
    verifier: Reward
    """Scores the model's own answers; one in which it finds no answer does not have the form."""
    sampling: Sampling = Sampling(temperature=0.0, max_tokens=128)
    """Sampling of the own answers, one to each task."""

    def examine(self, *subjects: Subject) -> Finding:
        """Compute the likelihood of the given answers, and answer every task."""
        check_roles(self.verifier)
        tasks = self.tasks.load()
        [subject] = subjects
        policy = subject.load()
        given = {side: _nats(policy, tasks, side) for side in ("chosen", "rejected")}
        if not len(given["chosen"]):
            raise UserError(
                f"none of the {len(tasks)} tasks has a preference or a demonstration; give columns named chosen and "
                "rejected, or completion"
            )
        scores = wait_for(self._score_all(subject.serve(policy), tasks))
        found = [score for score in scores if score.status != "error"]
        formed, right = sum(s.answer is not None for s in found), sum(s.status == "ok" for s in found)
        values = {
            "tasks": len(tasks),
            "left_out": len(scores) - len(found),
            "perplexity": {
                side: {"value": math.exp(float(nats.mean())), "texts": len(nats)} if len(nats) else None
                for side, nats in given.items()
            },
            "form": _share(formed, len(found)),
            "accuracy": _share(right, len(found)),
        }
        return Finding(values=values, lines=_lines(values))

    async def _score_all(self, server: Server, tasks: Sequence[Task]) -> list[Score]:
        groups = await answer_all(server, "cold_start", tasks, 1, self.sampling)
        context = RewardContext()
        done = await asyncio.gather(*(scored(group, self.verifier, context) for group in groups))
        return [t.score for group in done for t in group if t.score is not None]


def _nats(policy: "Policy", tasks: Sequence[Task], side: str) -> np.ndarray[Any, np.dtype[np.float64]]:
    """For each given answer, the mean of -log p over its tokens. Demonstrations stand for missing pairs."""
    from posttrain.components.diagnostics._likelihoods import token_logps

    written = []
    for task in tasks:
        texts = [pair.chosen if side == "chosen" else pair.rejected for pair in task.preferences]
        if not task.preferences and side == "chosen":
            texts = list(task.demonstrations)
        prompt_ids = policy.tokenizer.encode_prompt(task.prompt)
        for text in texts:
            ids = np.concatenate([prompt_ids, policy.tokenizer.encode_completion(task.prompt, text)]).astype(np.int64)
            if len(ids) > policy.context:
                raise UserError(
                    f"task {task.key}: prompt and answer have {len(ids)} tokens, more than the model's context of "
                    f"{policy.context}; leave the row out"
                )
            written.append((ids, max(1, len(prompt_ids))))
    logps = token_logps(policy, written) if written else []
    return np.array([-float(np.mean(logp_T, dtype=np.float64)) for logp_T in logps])


def _share(count: int, total: int) -> dict[str, Any] | None:
    """A proportion with its interval; None of nothing."""
    return {"value": count / total, "interval": list(wilson(count, total))} if total else None


def _lines(values: dict[str, Any]) -> list[str]:
    """One line for each number."""
    left_out = f"; {values['left_out']} answers could not be scored" if values["left_out"] else ""
    lines = [f"{values['tasks']} tasks{left_out}"]
    for side, found in values["perplexity"].items():
        if found:
            lines.append(f"perplexity of a token of the {side} answers: {found['value']:.2f} ({found['texts']} texts)")
    for name, text in (("form", "own answers that have the form"), ("accuracy", "own answers that are correct")):
        found = values[name]
        low, high = found["interval"] if found else (0.0, 0.0)
        lines.append(f"{text}: {found['value']:.1%} [{low:.1%}, {high:.1%}]" if found else f"{text}: not defined")
    return lines
