"""Edit blocks of a completion, the files after them, and how similar two sets of file changes are.

Texts of models can make a comparison of characters take minutes, so `open_comparison` is called by
`posttrain.grading.workers`, and what is compared is cut before. Formats and rules are those of SWE-RL
(arXiv:2502.18449; facebookresearch/swe-rl at 5aa10d6), read in its tests and described in `rewards/patch_similarity`.

    ### path          a block is in a fence, and begins with the file's path
    <<<<<<< SEARCH
    ...
    =======
    ...
    >>>>>>> REPLACE
"""

import difflib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

OPEN, DIVIDER, CLOSE = "<<<<<<< SEARCH", "=======", ">>>>>>> REPLACE"
TAGS: Final = ("<think>", "</think>", "<solution>", "</solution>")
LONGEST: Final = 200_000
"""Most characters of a file after its edits."""
Block = tuple[str, str, str]
"""Path, text that is searched, text that replaces it."""


class Malformed(Exception):
    """A completion without the form, or with an edit that cannot be applied; the message is the reason."""


def edits_of(completion: str) -> list[Block]:
    """The edit blocks of a completion. Raises `Malformed`."""
    for tag in TAGS:
        if completion.count(tag) != 1:
            raise Malformed(f"{tag} is there {completion.count(tag)} times, not once")
    thought = completion.partition(TAGS[0])[2].partition(TAGS[1])[0]
    solution = completion.partition(TAGS[2])[2].partition(TAGS[3])[0]
    if not thought.strip():
        raise Malformed("the thought is empty")
    blocks = blocks_of(solution)
    if not blocks:
        raise Malformed("no edit block in the solution")
    return blocks


def blocks_of(text: str) -> list[Block]:
    """The edit blocks of a text, in order; what has another form is skipped."""
    lines, found, place = text.split("\n"), [], 0
    while place < len(lines):
        block = _block_at(lines, place) if lines[place].lstrip().startswith("```") else None
        if block is not None:
            found.append(block[0])
        place = block[1] if block is not None else place + 1
    return found


def _block_at(lines: Sequence[str], place: int) -> tuple[Block, int] | None:
    """The block whose fence opens at a line, and the line after it."""
    if lines[place + 1 : place + 3][1:] != [OPEN] or not lines[place + 1].startswith("### "):
        return None
    try:
        divider = lines.index(DIVIDER, place + 3)
        close = lines.index(CLOSE, divider + 1)
    except ValueError:
        return None
    if not lines[close + 1 : close + 2] or not lines[close + 1].startswith("```"):
        return None
    search, replacement = lines[place + 3 : divider], lines[divider + 1 : close]
    return (lines[place + 1][4:].strip(), "\n".join(search), "\n".join(replacement)), close + 2


def edited(files: Mapping[str, str], blocks: Sequence[Block]) -> dict[str, str]:
    """The files that blocks name, after them; a match begins at a line, all are replaced. Raises `Malformed`."""
    found: dict[str, str] = {}
    for path, search, replacement in blocks:
        text = found.get(path, "\n" + files.get(path, ""))
        if search == replacement:
            raise Malformed(f"an edit of {path[:80]} changes nothing")
        times = text.count("\n" + search)
        if not times:
            raise Malformed(f"what an edit of {path[:80]} searches is not there")
        if len(text) + times * len(replacement) > LONGEST:
            raise Malformed(f"{path[:80]} would have more than {LONGEST:,} characters")
        found[path] = text.replace("\n" + search, "\n" + replacement)
    return {path: text[1:] for path, text in found.items()}


def written_edits(before: Mapping[str, str], after: Mapping[str, str]) -> str:
    """Edit blocks that make the files of `after`, a block for each: the lines that differ, and as many before them as
    it takes to name no other place.
    """
    blocks = []
    for path, text in after.items():
        old, new = before.get(path, "").split("\n"), text.split("\n")
        if path not in before:
            blocks.append(_written(path, "", text))
        if path not in before or old == new:
            continue
        start = next((i for i, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))
        most = min(len(old), len(new)) - start
        same = next((i for i in range(most) if old[-1 - i] != new[-1 - i]), most)
        end = len(old) - same
        while start and (start in (end, len(new) - same) or not _names(before[path], old, start, end)):
            start -= 1
        if start in (end, len(new) - same):  # lines are added before the first, or it is removed
            end, same = end + 1, same - 1
        blocks.append(_written(path, "\n".join(old[start:end]), "\n".join(new[start : len(new) - same])))
    return "\n".join(blocks)


def _names(text: str, lines: Sequence[str], start: int, end: int) -> bool:
    """Whether these lines of a text are found where they are, and nowhere else."""
    whole, searched = "\n" + text, "\n" + "\n".join(lines[start:end])
    return whole.find(searched) == len("\n".join(["", *lines[:start]])) and whole.count(searched) == 1


def _written(path: str, search: str, replacement: str) -> str:
    return "\n".join(["```", f"### {path}", OPEN, search, DIVIDER, replacement, CLOSE, "```"])


def changes(before: Mapping[str, str], after: Mapping[str, str]) -> dict[str, str]:
    """The unified difference of each file that changed, with 3 lines of context and no header."""
    found = {}
    for path, text in after.items():
        lines = difflib.unified_diff(before.get(path, "").split("\n"), text.split("\n"), lineterm="", n=3)
        if rest := list(lines)[2:]:
            found[path] = "\n".join(rest)
    return found


def similarity(found: Mapping[str, str], wanted: Mapping[str, str], ratio: Callable[[str, str], float]) -> float:
    """The mean over all paths of the similarity of two differences; 0 for a path of one side, 1 without any path."""
    paths = sorted(found.keys() | wanted.keys())
    each = [ratio(found[path], wanted[path]) if path in found and path in wanted else 0.0 for path in paths]
    return sum(each) / len(each) if each else 1.0


def matcher() -> Callable[[str, str], float]:
    """The ratio of matching characters of two texts; by cydifflib where it is installed, which gives the same."""
    try:
        from cydifflib import SequenceMatcher as Matcher
    except ImportError:
        from difflib import SequenceMatcher as Matcher

    def ratio(text: str, other: str) -> float:
        return 1.0 if text == other else float(Matcher(None, text, other, autojunk=False).ratio())

    return ratio


def open_comparison(argument: Any) -> Callable[[Mapping[str, Any]], dict[str, Any]]:
    """In a worker: returns what applies a completion's edits and compares them with the oracle's."""
    ratio = matcher()

    def compare(call: Mapping[str, Any]) -> dict[str, Any]:
        files, oracle, longest = call["files"], call["oracle"], call["longest"]
        try:
            after = edited(files, edits_of(call["completion"]))
        except Malformed as error:
            return {"malformed": str(error)}
        found, wanted = changes(files, after), changes(files, oracle)
        too_long = [path for path, text in found.items() if len(text) > longest]
        value = similarity({**found, **dict.fromkeys(too_long, "")}, wanted, ratio)
        changed = {path: text for path, text in after.items() if path in found}
        return {"similarity": value, "after": changed, "exact": found == wanted, "too_long": too_long[:3]}

    return compare
