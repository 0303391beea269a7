"""What the tests of users' mistakes share: a small run, and rewards that fail."""

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

Refused = Callable[..., str]

SMALL = (
    "model=tiny",
    "tasks=sums.jsonl",
    "evaluation.holdout=2",
    "steps=2",
    "prompts=2",
    "rollout.n=2",
    "rollout.sampling.max_tokens=4",
    "threads=1",
)
CONTEXT = 64
REWARDS = """
def fine(completion):
    return len(completion) / 4

def raises(completion):
    raise ConnectionError("the judge does not answer")

def no_number(completion):
    return float("nan")

def sometimes(completion):
    if len(completion) % 2:
        raise ValueError("odd")
    return len(completion) / 4

def strange(weight, height):
    return 1.0
"""


def write_rows(name: str, rows: Sequence[Any]) -> None:
    Path(name).write_text("".join(json.dumps(row) + "\n" for row in rows))
