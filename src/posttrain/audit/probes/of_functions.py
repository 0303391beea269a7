"""Refactored functions: a copy, a function that nothing calls, another meaning, a lost function."""

from collections.abc import Iterator

from posttrain.audit import Probe, Subject

FIELDS = ("source", "function")


def probes(subject: Subject) -> Iterator[Probe]:
    """Changes of the source and of the reference that are no correct refactoring."""
    source, name = subject.task.fields["source"], subject.task.fields["function"]
    texts = {
        "a copy": source,
        "a copy with a comment": f"# refactored\n{source}",
        "a function that nothing calls": f"{source}\n\ndef unused(a):\n    return a\n",
        "without the function": source.replace(f"def {name}(", "def renamed("),
        "a wrapper": f"{source.replace(f'def {name}(', 'def inner(')}\n\ndef {name}(*a):\n    return inner(*a)\n",
        "half": source[: len(source) // 2],
    }
    for name, text in texts.items():
        if text.strip() and text != subject.answer:
            yield Probe(name=name, text=subject.written(text), expected="any" if name == "a wrapper" else "unrewarded")
