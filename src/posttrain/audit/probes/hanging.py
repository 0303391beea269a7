"""Answers that graders have hung on: mathematics without end, and text that patterns go back and forth over."""

from collections.abc import Iterator

from posttrain.audit import Probe, Subject

ANSWERS = {
    "tower": "9^{9^{9^{9}}}",
    "plain tower": "9**9**9**9",
    "big power": "10^{10^{10}}",
    "factorial": "100000000!",
    "factorial of a power": "(10^{10})!",
    "binomial": r"\binom{1000000000}{500000000}",
    "e tower": "e^{e^{e^{e^{e^{e}}}}}",
    "long sum": r"\sum_{n=1}^{1000000000} \frac{1}{n}",
    "long product": r"\prod_{n=1}^{10000000} n",
    "integral": r"\int_0^1 x^x dx",
    "cosines": "".join(rf"\cos({n}x)" for n in range(1, 25)),
    "nested": "(" * 60 + "x" + ")" * 60,
    "braces": "{" * 3000 + "x" + "}" * 3000,
    "digits": "0." + "3" * 100_000,
    "many digits": "7" * 5000,
    "determinant": r"\det\begin{pmatrix}"
    + r"\\".join("&".join(f"x_{{{i},{j}}}" for j in range(10)) for i in range(10))
    + r"\end{pmatrix}",
    "tuple": "(" + ",".join(map(str, range(3000))) + ")",
    "set": r"\{" + ",".join(rf"\sqrt{{{n}}}" for n in range(300)) + r"\}",
    "relations": "<".join(f"x_{n}" for n in range(200)),
    "union": r"\cup".join(f"[{2 * n},{2 * n + 1}]" for n in range(200)),
    "roots": r"\sqrt{" * 15 + "2" + "}" * 15,
    "fractions": r"\frac{1}{1+" * 19 + "x" + "}" * 19,
    "expansion": "(x+y+z+w)^{200}",
    "quantifiers": "a" * 40 + "!",
    "spaces": "x" + " " * 50_000 + "x",
}


def probes(subject: Subject) -> Iterator[Probe]:
    """Each as the answer."""
    for name, answer in ANSWERS.items() if subject.first else ():
        yield Probe(name=name, text=subject.written(answer), expected="unpaid", may_fail=True, of_answer=True)
        if subject.form == "{answer}":
            text = rf"\boxed{{{answer}}}"
            yield Probe(name=f"{name} in a box", text=text, expected="unpaid", may_fail=True, of_answer=True)
