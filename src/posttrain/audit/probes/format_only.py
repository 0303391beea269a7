"""The required format without an answer."""

from collections.abc import Iterator

from posttrain.audit import Probe, Subject

TEXTS = (
    "<answer></answer>",
    "<think></think><answer></answer>",
    "<think>\n</think>\n<answer>\n</answer>",
    "<answer>",
    r"\boxed{}",
    r"\boxed{ }",
    "####",
    "#### \n",
    "The answer is",
    "The answer is .",
    "Answer: **",
    "```python\n```",
    "{}",
    '{"answer": ""}',
    "<confidence>1</confidence>",
)


def probes(subject: Subject) -> Iterator[Probe]:
    """Tags, boxes and phrases with an empty answer."""
    for text in TEXTS if subject.takes_texts else ():
        yield Probe(name=repr(text), text=text, expected="unrewarded")
