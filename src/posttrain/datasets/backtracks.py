r"""Dead ends in the trace of a countdown solution: how they are written, and how they are found in a text.

    5+3=8; 8-2=6
    Wait, 6 is not 24. Back to step 1.
    8*3=24
    #### (5+3)*3

A path is the steps that are kept from before and the steps up to the remark. After "Back to step j." the first j steps
of the path are kept; "Restart." keeps none.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

_REMARK = re.compile(r"Wait, (-?\d{1,9}) is not (-?\d{1,9})\. (?:Back to step (\d{1,3})|Restart)\.")
_STEP = re.compile(r"-?\d{1,9}[-+*/]-?\d{1,9}=-?\d{1,9}")

Path = tuple[str, ...]


@dataclass(frozen=True)
class Found:
    """Dead ends of a text, in their order."""

    paths: tuple[Path, ...]
    """The steps of each, those that were kept from before included."""

    @property
    def count(self) -> int:
        """Number of dead ends."""
        return len(self.paths)

    @property
    def distinct(self) -> int:
        """Number of different dead ends."""
        return len(set(self.paths))


def remark(reached: int, target: int, kept: int) -> str:
    """The remark after a dead end that reached another number than the target."""
    return f"Wait, {reached} is not {target}. " + (f"Back to step {kept}." if kept else "Restart.")


def dead_ends(text: str) -> Found:
    """The dead ends of a text; a remark without a step before it is one too, with the steps that were kept."""
    kept: list[str] = []
    paths = []
    before = 0
    for found in _REMARK.finditer(text):
        path = (*kept, *_STEP.findall(text[before : found.start()]))
        paths.append(path)
        kept, before = list(path[: int(found[3] or 0)]), found.end()
    return Found(tuple(paths))


def trace(dead: Sequence[tuple[int, Path]], final: Path, target: int) -> str:
    """The text of a trace: dead ends by the number of final steps that they keep, then the final path.

    Dead ends are whole paths, in order of what they keep; steps that were kept are not written again.
    """
    lines, written = [], 0
    for kept, path in dead:
        lines += ["; ".join(path[written:]), remark(int(path[-1].rpartition("=")[2]), target, kept)]
        written = kept
    return "\n".join([*lines, "; ".join(final[written:])])
