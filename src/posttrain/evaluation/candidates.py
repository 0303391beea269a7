"""Held-out evaluation over given answers: of a task's candidates, the one that the model finds likeliest.

Source: perplexity decoding of GenCLS++, He et al. 2025, arXiv:2504.19898. Of each candidate y the perplexity is

    exp(-(1 / |y|) sum_t log p(y_t | prompt, y_<t))

and the answer is the one with the smallest, the first of equals, so that it is always one of the candidates. The end
token counts as a token of y: otherwise a candidate that another one begins with could not lose to it.

A task has its candidates in the field ``candidates``, texts as the model would write them after the prompt. Nothing is
sampled.
"""

import asyncio
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from posttrain.components.rewards import Reward, RewardContext, scored
from posttrain.engines import Sampler, Server, wait_for
from posttrain.errors import UserError
from posttrain.evaluation.greedy import Evaluated
from posttrain.statistics.intervals import wilson
from posttrain.types import Group, Segment, Task, Trajectory

Unit = Literal["token", "whole"]
"""``token``: the mean log-probability of a token, as in the perplexity; ``whole``: the sum over the text."""


def evaluate_candidates(
    server: Server,
    tasks: Sequence[Task],
    verifier: Reward,
    *,
    per: Unit,
    correct_at: float,
    written: Sequence[Trajectory] = (),
) -> Evaluated:
    """Answer every task by the likeliest of its candidates, and score the answers.

    The summary has ``accuracy``, ``accuracy_interval``, ``correct``, ``tasks``, ``errors``, ``mean_perplexity`` of the
    answers, and ``outside``, the share of the `written` answers that are none of the candidates.
    """

    async def one(task: Task) -> tuple[Trajectory, float]:
        candidates = candidates_of(task)
        logp = await likelihoods(server.bind("evaluation", task.key, "candidates"), task, candidates)
        values = [float(own.mean() if per == "token" else own.sum()) for own in logp]
        if not np.isfinite(values).all():
            raise UserError(f"task {task.key}: the likelihood of a candidate is not a number; the model is broken")
        best = int(np.argmax(values))
        answer = Trajectory(
            task=task,
            segments=(Segment(actor="policy", token_ids=np.zeros(0, np.int64), text=candidates[best]),),
            stop_reason="stop",
        )
        [graded] = await scored(Group(trajectories=(answer,), key=task.key), verifier, RewardContext())
        return graded, float(np.exp(-logp[best].mean()))

    async def run() -> list[tuple[Trajectory, float]]:
        return list(await asyncio.gather(*map(one, tasks)))

    results = wait_for(run())
    answers = tuple(answer for answer, _ in results)
    scores = [t.score for t in answers if t.score is not None and t.score.status != "error"]
    correct = sum(score.value >= correct_at for score in scores)
    summary: dict[str, Any] = {
        "accuracy": correct / len(scores) if scores else None,
        "accuracy_interval": list(wilson(correct, len(scores))) if scores else None,
        "correct": correct,
        "tasks": len(answers),
        "errors": len(answers) - len(scores),
        "mean_perplexity": float(np.mean([perplexity for _, perplexity in results])),
    }
    if written:
        outside = [t.completion.strip() not in {text.strip() for text in candidates_of(t.task)} for t in written]
        summary["outside"] = sum(outside) / len(outside)
    return Evaluated(trajectories=answers, summary=summary)


async def likelihoods(sampler: Sampler, task: Task, texts: Sequence[str]) -> list[np.ndarray]:
    """For each text as the completion of the task's prompt, [T] log-probability of each token, its end included."""
    prompt = sampler.prompt(task)

    async def one(text: str) -> np.ndarray:
        ids = np.concatenate([prompt.token_ids, sampler.encode_completion(task.prompt, text)])
        if len(ids) > sampler.context:
            raise UserError(
                f"task {task.key}: prompt and candidate have {len(ids)} tokens, more than the model's context of "
                f"{sampler.context}; shorten the candidate or the prompt"
            )
        logp = await sampler.logp(ids, vectors=prompt.vectors)
        return np.asarray(logp[len(prompt) - 1 :], np.float64)

    return list(await asyncio.gather(*map(one, texts)))


def candidates_of(task: Task) -> list[str]:
    """The candidates of a task. Raises `UserError` where there are not two different ones."""
    found = task.fields.get("candidates")
    if isinstance(found, (list, tuple)) and all(isinstance(text, str) for text in found) and len(set(found)) > 1:
        return [str(text) for text in found]
    raise UserError(
        f"task {task.key}: evaluation.candidates compares given answers, but the field 'candidates' of this task is "
        f"{found!r}; give its row a column 'candidates', a list of at least two different texts, or set "
        "evaluation.candidates=null"
    )
