"""Exposure: how much likelier a model finds the codes of planted canaries than other codes of their form.

Source: Carlini et al. 2019, arXiv:1802.08232, section 4: with R all codes of a form, exposure = log2 |R| - log2 rank,
the rank being that of the canary's code among them by likelihood. A model that has not seen it has log2(e), 1.44 bits,
on average.

Differs: the rank is estimated from `others` random codes, as (1 + number of likelier ones) / (others + 1), so that the
largest exposure is log2(others + 1). Copies of a canary count once.
"""

import math
from random import Random
from typing import Any, ClassVar, Final

import numpy as np
from pydantic import NonNegativeInt, PositiveInt

from posttrain.component import frozen
from posttrain.components.diagnostics import Diagnostic, Finding, Subject
from posttrain.components.tasks import Tasks
from posttrain.errors import UserError
from posttrain.statistics.intervals import mean
from posttrain.types import IntArray

ROWS: Final = (74,)


@frozen
class Exposure(Diagnostic):
    """Ranks of canaries' codes by likelihood."""

    subjects: ClassVar[tuple[str, ...]] = ("model",)

    tasks: Tasks
    """Tasks of which some have the fields ``canary`` and ``digits``, and as demonstration a space and that many digits:
    ``records``."""
    others: PositiveInt = 255
    """Random codes that each is compared with."""
    seed: NonNegativeInt = 0
    """Seed of these codes."""

    def examine(self, *subjects: Subject) -> Finding:
        """Compare the likelihood of each code with those of others after the same prompt."""
        from posttrain.components.diagnostics._likelihoods import token_logps

        canaries = {str(task.prompt): task for task in self.tasks.load() if "canary" in task.fields}
        if not canaries:
            raise UserError("none of the tasks is a canary; take tasks=records, or rows with the fields canary, digits")
        [subject] = subjects
        policy = subject.load()
        written: list[tuple[IntArray, int]] = []
        for task in canaries.values():
            digits = task.fields.get("digits")
            code = task.demonstrations[0].strip() if task.demonstrations else ""
            if not (isinstance(digits, int) and code.isdecimal() and len(code) == digits):
                raise UserError(f"task {task.key}: a canary has a demonstration of 'digits' digits; got '{code[:40]}'")
            rng = Random(f"exposure:{self.seed}:{task.key}")
            drawn = ["".join(str(rng.randrange(10)) for _ in range(digits)) for _ in range(self.others)]
            prompt_ids = policy.tokenizer.encode_prompt(task.prompt)
            for text in (code, *drawn):
                own_ids = policy.tokenizer.encode_completion(task.prompt, f" {text}")
                written.append((np.concatenate([prompt_ids, own_ids]).astype(np.int64), max(1, len(prompt_ids))))
        sums = np.array([float(np.sum(logp_T, dtype=np.float64)) for logp_T in token_logps(policy, written)])
        found = [exposure(row) for row in sums.reshape(len(canaries), self.others + 1)]
        estimate = mean(found)
        low, high = estimate.interval
        values: dict[str, Any] = {
            "canaries": len(found),
            "exposure": estimate.value,
            "interval": [low, high] if len(found) > 1 else None,
            "largest": max(found),
            "each": found,
        }
        ends = f" [{low:.2f}, {high:.2f}]" if len(found) > 1 else ""
        return Finding(
            values=values,
            lines=[
                f"mean exposure of {len(found)} canaries: {estimate.value:.2f} bits{ends}; unseen ones have 1.44, and "
                f"{math.log2(self.others + 1):.2f} is the most that {self.others} other codes can show"
            ],
        )


def exposure(logps: "np.ndarray[Any, np.dtype[np.float64]]") -> float:
    """Bits of a code's exposure, the first of the log-probabilities; equal ones count half."""
    own, others = logps[0], logps[1:]
    rank = 1.0 + float((others > own).sum()) + 0.5 * float((others == own).sum())
    return math.log2(len(logps) / rank)
