"""Logs of Inspect: one for each held-out evaluation, with its answers as samples and their scores.

    inspect view --log-dir exports

Source: version 2 of the JSON form of Inspect's logs, https://inspect.aisi.org.uk/eval-logs.html. Training is not in
these logs, since Inspect has no place for it. Several answers to a task are its epochs, the greedy one first. An answer
that could not be scored has an error and no score.
"""

import json
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, ClassVar

from pydantic import NonNegativeInt

from posttrain.component import frozen
from posttrain.components.trackers import Sample, Session, TrackedRun, Tracker, flat, new_folder, own_folder

_STOP_REASONS = {"stop": "stop", "length": "max_tokens"}
"""Inspect's words for stop reasons."""


@frozen
class Inspect(Tracker):
    """A folder of logs."""

    longest_text: ClassVar[int | None] = None
    out: str | None = None
    """Folder that gets ``RUN/inspect``; None writes to ``trackers/inspect`` in the run's folder."""
    samples: NonNegativeInt | None = None
    """Answers of an evaluation at most; None for all."""

    def open(self, run: TrackedRun) -> Session:
        """Add logs to the folder."""
        return Logs(new_folder(own_folder(self.out, run, "inspect"), run), run)


class Logs(Session):
    """The logs of a run."""

    def __init__(self, folder: Path, run: TrackedRun) -> None:
        """`folder` is there."""
        self._folder, self._run = folder, run
        self.reference = {"folder": str(folder)}

    def log(self, step: int, values: Mapping[str, float]) -> None:
        """Nothing: there is no place for numbers of training."""

    def table(self, step: int, split: str, samples: Sequence[Sample]) -> None:
        """Nothing: there is no place for rollouts of training."""

    def evaluation(self, step: int, name: str, values: Mapping[str, float], samples: Sequence[Sample]) -> None:
        """A log."""
        now = datetime.now(UTC).replace(microsecond=0)
        number = len(list(self._folder.glob("*.json"))) + 1
        content = json.dumps(_log(self._run, step, name, number, now, values, samples), ensure_ascii=True, indent=1)
        task = re.sub(r"[^\w.-]+", "-", f"{self._run.name}-step-{step}-{name}")
        path = self._folder / f"{now.strftime('%Y-%m-%dT%H-%M-%S+00-00')}_{task}_{self._run.id}{number:04}.json"
        path.write_text(content + "\n", encoding="utf-8")


def _log(
    run: TrackedRun,
    step: int,
    name: str,
    number: int,
    now: datetime,
    values: Mapping[str, float],
    samples: Sequence[Sample],
) -> dict[str, Any]:
    """A log as Inspect's schema has it."""
    verifier = (run.recipe.get("evaluation") or {}).get("verifier")
    scorer = str(verifier["kind"]) if isinstance(verifier, Mapping) else "reward"
    model = f"posttrain/{run.name}"
    numbers = {key.removeprefix("eval/"): value for key, value in values.items()}
    tasks = list(dict.fromkeys(sample.task for sample in samples))
    scored = sum(_is_scored(sample) for sample in samples)
    return {
        "version": 2,
        "status": "success",
        "eval": {
            "eval_id": f"{run.id}{number:04}",
            "run_id": f"{run.name}-{run.id}",
            "created": now.isoformat(),
            "task": f"{run.recipe.get('name', run.name)} ({name})",
            "task_id": f"{run.name}-{run.id}",
            "task_args": {key: value for key, value in flat(run.recipe).items() if value is not None},
            "dataset": {"name": "held-out tasks", "samples": len(tasks), "sample_ids": tasks},
            "model": model,
            "config": {"epochs": max((sample.sample for sample in samples), default=0) + 1},
            "metadata": {"step": step, "evaluation": name},
        },
        "results": {
            "total_samples": len(samples),
            "completed_samples": len(samples),
            "scores": [
                {
                    "name": scorer,
                    "scorer": scorer,
                    "scored_samples": scored,
                    "unscored_samples": len(samples) - scored,
                    "metrics": {key: {"name": key, "value": value} for key, value in numbers.items()},
                }
            ],
        },
        "stats": {"started_at": now.isoformat(), "completed_at": now.isoformat()},
        "samples": [_sample(sample, scorer, model) for sample in samples],
    }


def _is_scored(sample: Sample) -> bool:
    return sample.reward is not None and sample.status != "error"


def _sample(sample: Sample, scorer: str, model: str) -> dict[str, Any]:
    """An answer."""
    reply = {"role": "assistant", "content": sample.completion, "source": "generate", "model": model}
    stop_reason = _STOP_REASONS.get(sample.stop_reason or "", "unknown")
    found: dict[str, Any] = {
        "id": sample.task,
        "epoch": sample.sample + 1,
        "input": sample.prompt,
        "target": sample.answer or "",
        "messages": [{"role": "user", "content": sample.prompt, "source": "input"}, reply],
        "output": {"model": model, "choices": [{"message": reply, "stop_reason": stop_reason}]},
        "metadata": {"status": sample.status},
    }
    if _is_scored(sample):
        score = {"value": sample.reward, "answer": sample.extracted, "explanation": sample.explanation}
        return {**found, "scores": {scorer: score}}
    why = sample.explanation or "it was not scored"
    return {**found, "error": {"message": why, "traceback": why, "traceback_ansi": why}}
