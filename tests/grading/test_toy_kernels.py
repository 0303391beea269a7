"""What the toy language compiles."""

import ast

import pytest

from posttrain.grading.toy_kernels import refusal

HEAD = "@kernel\ndef k(i, x, n, out):\n"


def refused(body: str) -> str:
    return refusal(ast.parse(HEAD + "".join(f"    {line}\n" for line in body.split("\n"))))


@pytest.mark.parametrize(
    "body",
    [
        "out[i] = 3 * x[i] - max(x[i], 0.0)",
        "s = 0.0\nfor j in range(n):\n    s = s + x[i * n + j]\nout[i] = s / n",
        "out[i] = 0.0\nif x[i] > 0 and i < n:\n    out[i] += sqrt(abs(x[i]))\nelse:\n    pass",
        "j = 0\nwhile j < n:\n    j += 1\n    if j == 3:\n        break\nout[i] = x[i] if j else -x[i]",
    ],
)
def test_kernels_that_compile(body: str) -> None:
    assert refused(body) == ""


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ("out[i] = reference(x)[i]", "it has a Subscript"),
        ("out[i] = reference", "the name reference is not its own"),
        ("import os\nout[i] = x[i]", "it has a Import"),
        ("out[i] = x._items[i]", "it has a Subscript"),
        ("out[i] = x.shape", "it has a Attribute"),
        ("out[i] = (lambda: x[i])()", "it has a"),
        ("out[i] = [x[j] for j in range(n)][i]", "it has a"),
        ("out[i] = 'a'", "a constant that is no number"),
        ("out[i] = max(x[i], default=1)", "it has a Call"),
        ("max = x\nout[i] = max[i]", "a name of the language is assigned"),
        ("y = x\nout[i] = y[i]", "y is no parameter"),
        ("out[i], out[0] = x[i], 1", "it has a"),
        ("out[0:n] = x", "it has a Slice"),
        ("global g\ng = x[i]", "it has a Global"),
        ("out[i] = f'{x}'", "it has a JoinedStr"),
        ("for j in x:\n    out[i] = j", "it has a For"),
    ],
)
def test_kernels_that_do_not(body: str, why: str) -> None:
    assert why in refused(body)


def test_other_parameters_and_decorators_are_refused() -> None:
    for given in ("*x", "i, **x", "i, x=1", "i, *, x"):
        assert "plain parameters" in refusal(ast.parse(f"@kernel\ndef k({given}):\n    pass\n"))
    assert "one decorator" in refusal(ast.parse("@kernel\n@kernel\ndef k(i):\n    pass\n"))
    assert refusal(ast.parse("def f(*x):\n    return reference(x)\n")) == "", "it is no kernel"
