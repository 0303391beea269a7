"""Common parts of rewards that run programs: finding programs in completions, running each once, naming failures."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from posttrain.components.rewards import failure
from posttrain.sandbox import Result
from posttrain.types import Group, Score, Trajectory

_FENCE: Final = re.compile(r"^ {0,3}(```+|~~~+)[ \t]*([^`\n]*)$", re.MULTILINE)

LONGEST: Final = 16_384
"""Most characters of a program that is run."""


def find_code(trajectory: Trajectory) -> str | None:
    """The program of a completion; see `code_in`."""
    return code_in(trajectory.completion, cut=trajectory.stop_reason == "length")


def code_in(text: str, *, cut: bool = False) -> str | None:
    """The last fenced block of a text, or all of it if there is no fence; None if it is empty or was cut by the token
    limit.
    """
    opened: re.Match[str] | None = None
    block: str | None = None
    fences = 0
    for fence in _FENCE.finditer(text):
        fences += 1
        if opened is None:
            opened = fence
        elif fence[1].startswith(opened[1]) and not fence[2].strip():
            block = text[opened.end() + 1 : fence.start()]
            opened = None
    if opened is not None and not cut:  # the end of the block is where the completion ended: a stop string is cut off
        block = text[opened.end() + 1 :]
    if not fences and not cut:
        block = text
    return block if block is not None and block.strip() else None


async def score_each(
    group: Group,
    score: Callable[[Trajectory, str], Awaitable[Score]],
    missing: float,
    fault: Callable[[Trajectory], str],
) -> Sequence[Score]:
    """Find and score the program of each rollout; the same program of the same task is scored once.

    `fault` returns why a task cannot be used for scoring; empty if it can.
    """
    scored: dict[tuple[int, str], asyncio.Future[Score]] = {}
    scores: list[asyncio.Future[Score] | Score] = []
    for trajectory in group:
        code = find_code(trajectory)
        if explanation := fault(trajectory):
            scores.append(failure(f"task '{trajectory.task.key}' {explanation}"))
        elif code is None:
            cut = " (one that is cut at the token limit is none)" if trajectory.stop_reason == "length" else ""
            scores.append(Score(value=missing, status="wrong", explanation=f"no program found{cut}"))
        elif len(code) > LONGEST:
            scores.append(
                Score(value=missing, status="wrong", explanation=f"longer than {LONGEST} characters: not run")
            )
        else:
            key = id(trajectory.task), code
            if key not in scored:
                scored[key] = asyncio.ensure_future(score(trajectory, code))
            scores.append(scored[key])
    await asyncio.gather(*scored.values())
    return [score if isinstance(score, Score) else score.result() for score in scores]


def broken(result: Result) -> Score | None:
    """The score if the sandbox failed, whatever the program; None if it did not."""
    if result.outcome != "sandbox_error":
        return None
    return failure(f"the sandbox failed: {result.explanation}")


def how_it_ended(result: Result) -> str:
    """A result in words, for an explanation; without times, so that it is the same for the same program."""
    if result.outcome == "nonzero":
        line = _last_line(result.stderr)
        return f"ended with code {result.exit_code}" + (f": {line}" if line else "")
    return f"{result.outcome} ({result.explanation})" if result.explanation else result.outcome


def encoded(text: str) -> bytes:
    """Text as UTF-8; characters that cannot be encoded are replaced."""
    return text.encode("utf-8", errors="replace")


def _last_line(output: bytes) -> str:
    lines = [line.strip() for line in output.decode("utf-8", errors="replace").splitlines() if line.strip()]
    return lines[-1][:200] if lines else ""
