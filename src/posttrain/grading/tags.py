"""Tags around the parts of a completion: ``<think>...</think><answer>...</answer>``."""

import re
from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from posttrain.types import Trajectory

TagName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_-]*$")]


def marks_of(tags: Sequence[str]) -> list[str]:
    """Opening and closing marks, in the required order."""
    return [f"<{end}{tag}>" for tag in tags for end in ("", "/")]


def find_marks(text: str, tags: Sequence[str]) -> list[re.Match[str]]:
    """Every mark of one of the tags, in the order of the text."""
    return list(re.finditer("|".join(map(re.escape, marks_of(tags))), text))


def opened_by_prompt(trajectory: Trajectory, tags: Sequence[str]) -> str:
    """The first opening mark, if the prompt ends with it, as some chat templates do."""
    prompt = next((segment.text for segment in trajectory.segments if segment.actor == "prompt"), "")
    opening = f"<{tags[0]}>"
    return opening if prompt.rstrip().endswith(opening) else ""
