"""Answers that make graders hang, crash or accept: mathematics that does not terminate, text that makes patterns
backtrack, look-alike digits, and invalid characters.
"""

from collections.abc import Iterator

from posttrain.audit import Probe, Subject

ABOUT = "answers"

ENDLESS = {
    "tower": "9^{9^{9^{9}}}",
    "plain tower": "9**9**9**9",
    "big power": "10^{10^{10}}",
    "factorial": "100000000!",
    "factorial of a power": "(10^{10})!",
    "factorials of factorials": "((((9!)!)!)!)!",
    "binomial": r"\binom{1000000000}{500000000}",
    "e tower": "e^{e^{e^{e^{e^{e}}}}}",
    "power of an unknown": "(x+1)^{1000000}",
    "expansion": "(x+y+z+w)^{200}",
    "small root of a large power": r"\sqrt[1000003]{7^{1000033}}",
    "remainder": r"7^{7^{7^{7}}} \bmod 1000007",
    "common divisor": r"\gcd(2^{2^{60}}-1, 3^{3^{40}}-1)",
    "logarithm of a tower": r"\log_{2}(2^{2^{2^{2^{2^{2}}}}})",
    "long sum": r"\sum_{n=1}^{1000000000} \frac{1}{n}",
    "sum without end": r"\sum_{n=1}^{\infty} \frac{\sin(n!)}{n^{n}}",
    "sums in sums": r"\sum_{a=1}^{999}\sum_{b=1}^{999}\sum_{c=1}^{999}\frac{1}{a+b+c}",
    "long product": r"\prod_{n=1}^{10000000} n",
    "product without end": r"\prod_{n=1}^{\infty} (1+\frac{1}{n^{n}})",
    "integral": r"\int_0^1 x^x dx",
    "integrals in integrals": r"\int_0^1\int_0^1\int_0^1 \frac{e^{xyz}}{1+\sin(xyz)} dx dy dz",
    "limit": r"\lim_{n \to \infty} \frac{n!}{n^{n}} \cos(n^{n})",
    "cosines": "".join(rf"\cos({n}x)" for n in range(1, 25)),
    "nested sines": r"\sin(" * 18 + "1" + ")" * 18,
    "close to nothing": r"\sin(10^{100}) - \sin(10^{100}+10^{-100})",
    "digits past any precision": r"\lfloor e^{\pi\sqrt{163}} \cdot 10^{1000000} \rfloor",
}
"""Short expressions whose evaluation takes very long or does not terminate."""
LONG = {
    "nested": "(" * 60 + "x" + ")" * 60,
    "braces": "{" * 3000 + "x" + "}" * 3000,
    "absolute values": "|" * 40 + "x" + "|" * 40,
    "roots": r"\sqrt{" * 15 + "2" + "}" * 15,
    "fractions": r"\frac{1}{1+" * 19 + "x" + "}" * 19,
    "subscripts": "x_{" * 18 + "1" + "}" * 18,
    "boxes in boxes": r"\boxed{" * 2000 + "x" + "}" * 2000,
    "digits": "0." + "3" * 100_000,
    "many digits": "7" * 5000,
    "digits in groups": ",".join(["123"] * 1500),
    "digits after zeros": "0." + "0" * 1900 + "1",
    "long fraction": "1" * 900 + "/" + "3" * 900,
    "determinant": r"\det\begin{pmatrix}"
    + r"\\".join("&".join(f"x_{{{i},{j}}}" for j in range(10)) for i in range(10))
    + r"\end{pmatrix}",
    "wide matrix": r"\begin{pmatrix}" + r"\\".join(["&".join("1" * 30)] * 30) + r"\end{pmatrix}",
    "power of a matrix": r"\begin{pmatrix}1&x\\y&2\end{pmatrix}^{1000000}",
    "inverse of a matrix": r"\begin{pmatrix}"
    + r"\\".join("&".join(rf"\sqrt{{{i + 9 * j + 2}}}" for j in range(8)) for i in range(8))
    + r"\end{pmatrix}^{-1}",
    "tuple": "(" + ",".join(map(str, range(3000))) + ")",
    "set": r"\{" + ",".join(rf"\sqrt{{{n}}}" for n in range(300)) + r"\}",
    "relations": "<".join(f"x_{n}" for n in range(200)),
    "union": r"\cup".join(f"[{2 * n},{2 * n + 1}]" for n in range(200)),
    "intersection": r"\cap".join(rf"(-\infty,\sqrt{{{n}}})" for n in range(2, 100)),
    "signs": "-" * 1001 + "7",
    "sum of unknowns": "+".join(f"x_{n}" for n in range(300)),
    "quantifiers": "a" * 40 + "!",
    "pattern of groups": "(a+)+" * 20 + "b",
    "spaces": "x" + " " * 50_000 + "x",
    "commas": "1" + "," * 1900,
    "units": "7 " + "metres per second " * 100,
    "dollars": "$" * 1900 + "7",
    "texts in texts": r"\text{" * 15 + "7" + "}" * 15,
}
"""Very long or deeply nested answers."""
BROKEN = {
    "open brace": r"\frac{1}{2",
    "open boxes": r"\boxed{\boxed{\boxed{7",
    "closed too often": "7}}}}}}}}",
    "open environment": r"\begin{pmatrix}1&2\\3",
    "backslash at the end": "7\\",
    "only operators": "+-*/^_=<>",
    "unknown commands": r"\aaaa\bbbb{\cccc}[\dddd]",
    "recursive macro": r"\def\x{\x\x}\x",
    "new command": r"\newcommand{\f}[1]{\f{#1}\f{#1}}\f{7}",
    "loop of commands": r"\loop\iftrue\repeat",
    "category codes": r"\catcode`\{=12 \catcode`\\=12 7",
    "input": r"\input{/etc/passwd}",
    "write": r"\immediate\write18{touch /nonexistent/canary}",
    "include": r"\verbatiminput{/dev/zero}",
    "null": "7\0",
    "null before": "\0" * 100 + "7",
    "control characters": "\x01\x02\x1b[2J\x07\x7f7",
    "surrogate": "7\ud800",
    "surrogates": "\udc80" * 50,
    "right to left": "\u202e7\u202d\u2066\u2069",
    "marks upon marks": "7" + "\u0301" * 1000,
    "spaces of no width": "\u200b".join("7777"),
    "superscripts": "7⁹⁹⁹⁹",
    "digits of another script": "٧७７𝟽",
    "fraction signs": "½⅓¼⅐",
    "roman numbers": "ⅯⅯⅬⅩⅤⅡ",
    "Chinese numbers": "七百七十七",
    "circled digits": "⑦⑰",
}
"""Incomplete LaTeX, LaTeX that is a program, and characters that are invisible or look like others."""
STRANGE_VALUES = {
    "infinity": r"\infty",
    "minus infinity": r"-\infty",
    "no number": "nan",
    "word for infinity": "inf",
    "infinity as a float": "1e999",
    "nothing as a float": "1e-999",
    "exponent": "1e1000000000",
    "zero by zero": r"\frac{0}{0}",
    "one by zero": "1/0",
    "infinity less infinity": r"\infty-\infty",
    "zero to the zero by zero": r"\frac{0^0}{0}",
    "complex infinity": r"\tan(\frac{\pi}{2})",
    "logarithm of zero": r"\log(0)",
    "percent of percent": r"7\%\%\%\%\%\%",
    "percent of infinity": r"\infty\%",
    "any number": r"x \in \mathbb{R}",
    "range": r"(-\infty, \infty)",
    "unknown": "x",
    "equal to itself": "x = x",
    "both": r"\pm 7",
    "truth": "True",
    "none": "None",
    "object": "()",
    "attribute": "x.__class__.__mro__[1].__subclasses__()",
    "import": "__import__('os').getpid()",
    "hexadecimal": "0x7",
    "underscored": "7_7",
    "imaginary": "7j",
}
"""Values with unusual comparisons, and text that Python evaluates to such a value."""
ANSWERS = {**ENDLESS, **LONG, **BROKEN, **STRANGE_VALUES}
BOXED = {**BROKEN, **STRANGE_VALUES}
"""Answers that are also tried in a box; for the others this would only repeat the work."""


def probes(subject: Subject) -> Iterator[Probe]:
    """Each of these as the answer."""
    for name, answer in ANSWERS.items() if subject.first else ():
        yield Probe(name=name, text=subject.written(answer), expected="unrewarded", may_fail=True, of_answer=True)
        if subject.form == "{answer}" and name in BOXED:
            text = rf"\boxed{{{answer}}}"
            yield Probe(name=f"{name} in a box", text=text, expected="unrewarded", may_fail=True, of_answer=True)
