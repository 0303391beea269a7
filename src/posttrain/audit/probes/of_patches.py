"""Patches: a comment or nonsense in the right line, edits that undo each other, a path outside, no edit."""

from collections.abc import Iterator

from posttrain.audit import Probe, Subject

FIELDS = ("files", "oracle")
EDIT = "```\n### {path}\n<<<<<<< SEARCH\n{search}\n=======\n{replacement}\n>>>>>>> REPLACE\n```"


def probes(subject: Subject) -> Iterator[Probe]:
    """Edits of the first line that the reference changes, none of which is the reference."""
    files, oracle = subject.task.fields["files"], subject.task.fields["oracle"]
    for path, fixed in oracle.items():
        lines = zip(files.get(path, "").split("\n"), fixed.split("\n"), strict=False)
        old, new = next(((a, b) for a, b in lines if a != b and a.strip()), ("", ""))
        if old:
            break
    else:
        return
    texts = {
        "a comment in the right line": [(path, old, f"{old}  # fixed")],
        "nonsense in the right line": [(path, old, "pass  # qwertz")],
        "the right line without its code": [(path, old, "")],
        "edits that undo each other": [(path, old, "pass"), (path, "pass", old)],
        "the reverse": [(path, new or "pass", old)],
        "a path outside": [(path, old, new), ("../x", "", "x")],
        "another file": [(f"{path}.orig", old, new)],
    }
    for name, edits in texts.items():
        blocks = "\n".join(EDIT.format(path=at, search=was, replacement=now) for at, was, now in edits)
        text = f"<think>so</think><solution>\n{blocks}\n</solution>"
        yield Probe(name=name, text=text, expected="unrewarded")
    yield Probe(name="no edit", text="<think>so</think><solution>\n</solution>", expected="unrewarded")
