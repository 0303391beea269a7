"""A model writes a state encoder: several candidates, one summary of them, and rounds of checking by execution.

Source: LaRe, arXiv:2412.11120, by its release: five candidates at temperature 1, one call at temperature 0.3 that makes
a new function of them, then up to five rounds in which the function is executed on real observations and the error goes
back to the model. With one candidate there is no summary. The answer is JSON with an understanding of the task, an
analysis, and functions, of which the first one counts.
"""

import json
import re
from collections.abc import Awaitable, Callable
from typing import Final

from posttrain.grading.encoders import BadEncoder

Write = Callable[[str, int, float], Awaitable[list[str]]]
"""Prompt, number of answers and temperature; returns the answers."""
Check = Callable[[str], object]
"""Runs a function on real steps; raises `BadEncoder`."""

FORM: Final = (
    'Answer with one JSON object: {{"understanding": "...", "analysis": "...", "functions": ["def factors(observation, '
    'action):\\n    ...\\n    return [...]"]}}. The function takes one step, as two lists of numbers, and returns a '
    "list of a few numbers, always as many: the factors of the reward of this step. It uses the standard library only. "
    "No factor may be infinite or not a number, so divide by nothing that can be 0."
)
ASK: Final = (
    "An agent gets one return at the end of an episode. Which factors of a single step decide its reward?\n\n"
    "Task: {about}\n\nA step, as an example: observation {observation}, action {action}.\n\n" + FORM
)
SUMMARIZE: Final = "{ask}\n\nThese answers were given. Make one better answer of them.\n\n{answers}"
REPAIR: Final = "{ask}\n\nThis function was given:\n\n{code}\n\nIt failed: {fault}. Answer again."
_FENCE: Final = re.compile(r"```(?:python|json)?\s*\n(.*?)```", re.DOTALL)


async def write_encoder(write: Write, ask: str, check: Check, *, candidates: int = 5, rounds: int = 5) -> str:
    """The code of an encoder that passed the check. Raises `BadEncoder` if none did in the last round."""
    answers = await write(ask, candidates, 1.0)
    if candidates > 1:
        joined = "\n\n".join(f"{i}. {answer}" for i, answer in enumerate(answers, start=1))
        answers = await write(SUMMARIZE.format(ask=ask, answers=joined), 1, 0.3)
    for left in reversed(range(rounds)):
        code = ""
        try:
            code = code_of(answers[0])
            check(code)
        except BadEncoder as fault:
            if not left:
                raise BadEncoder(f"after {rounds} rounds of repair: {fault}") from None
            answers = await write(REPAIR.format(ask=ask, code=code or answers[0], fault=fault), 1, 0.3)
        else:
            return code
    raise BadEncoder("no round of checking is allowed")


def code_of(answer: str) -> str:
    """The code of an answer: that of its JSON, or of its first fence. Raises `BadEncoder` where there is none."""
    for text in (answer, *_FENCE.findall(answer)):
        start, end = text.find("{"), text.rfind("}")
        try:
            found = json.loads(text[start : end + 1]) if 0 <= start < end else None
        except (ValueError, RecursionError):
            found = None
        functions = found.get("functions") if isinstance(found, dict) else None
        if isinstance(functions, list) and functions and isinstance(functions[0], str):
            return functions[0]
    fenced = _FENCE.findall(answer)
    if fenced and "def " in fenced[0]:
        return str(fenced[0])
    raise BadEncoder("the answer has no function: neither JSON with functions nor a block of code")
