"""What the rewards that run programs share: finding the program in a completion, running each once, naming failures."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from posttrain.components.rewards import failure
from posttrain.sandbox import Result
from posttrain.types import Group, Score, Trajectory

_FENCE: Final = re.compile(r"^ {0,3}(```+|~~~+)[ \t]*([^`\n]*)$", re.MULTILINE)

LONGEST: Final = 16_384
"""Characters; a longer program is not run. What models are asked for is a tenth of it."""


def find_code(trajectory: Trajectory) -> str | None:
    """The last fenced block of a completion, or all of it where there is no fence; None for nothing, or for what the
    token limit cut in the middle.
    """
    text, cut = trajectory.completion, trajectory.stop_reason == "length"
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


async def judge_each(
    group: Group,
    judge: Callable[[Trajectory, str], Awaitable[Score]],
    missing: float,
    fault: Callable[[Trajectory], str],
) -> Sequence[Score]:
    """Find and judge the program of each attempt, the same program for the same task once.

    `fault` says why a task cannot be judged, or nothing.
    """
    judged: dict[tuple[int, str], asyncio.Future[Score]] = {}
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
            if key not in judged:
                judged[key] = asyncio.ensure_future(judge(trajectory, code))
            scores.append(judged[key])
    await asyncio.gather(*judged.values())
    return [score if isinstance(score, Score) else score.result() for score in scores]


def broken(result: Result) -> Score | None:
    """The score where the sandbox failed, which says nothing of the program; None where it did not."""
    if result.outcome != "sandbox_error":
        return None
    return failure(f"the sandbox failed: {result.explanation}")


def how_it_ended(result: Result) -> str:
    """A result in words, for an explanation; the same for the same program, so without times."""
    if result.outcome == "nonzero":
        said = _last_line(result.stderr)
        return f"ended with code {result.exit_code}" + (f": {said}" if said else "")
    return f"{result.outcome} ({result.explanation})" if result.explanation else result.outcome


def encoded(text: str) -> bytes:
    """Text as bytes, whatever a tokenizer made of it."""
    return text.encode("utf-8", errors="replace")


def _last_line(output: bytes) -> str:
    lines = [line.strip() for line in output.decode("utf-8", errors="replace").splitlines() if line.strip()]
    return lines[-1][:200] if lines else ""
