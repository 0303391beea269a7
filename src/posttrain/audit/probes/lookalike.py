"""The answer in look-alike Unicode characters, which are not the answer."""

from collections.abc import Iterator

from posttrain.audit import Probe, Subject

ABOUT = "answers"

_CYRILLIC = str.maketrans("aceopxyABEHKMOPCTX", "асеорхуАВЕНКМОРСТХ")
_WIDE = {code: code + 0xFEE0 for code in range(0x21, 0x7F)}
_ARABIC = {ord("0") + digit: 0x660 + digit for digit in range(10)}
_MATHEMATICAL = {ord("0") + digit: 0x1D7CE + digit for digit in range(10)}


def probes(subject: Subject) -> Iterator[Probe]:
    """The answer, translated by each table that changes it."""
    answer = subject.answer
    changed = {
        "Cyrillic": answer.translate(_CYRILLIC),
        "full width": answer.translate(_WIDE),
        "Arabic digits": answer.translate(_ARABIC),
        "mathematical digits": answer.translate(_MATHEMATICAL),
        "right to left": f"\u202e{answer[::-1]}",
        "joined": "\u200d".join(answer) if len(answer) > 1 else f"\u200d{answer}",
    }
    for name, text in changed.items():
        if text != answer:
            yield Probe(name=name, text=subject.written(text), expected="unrewarded", of_answer=True)
