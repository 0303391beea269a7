"""Forty small programs in PyTorch, each with a right kernel in the toy language and one in Triton.

A program is a text with the constants A and B. Kernels are written from few parts: element by element, row by row, and
six of their own. `posttrain.components.tasks.kernels` draws constants, shapes and dtypes.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Final

WORDS: Final = {"max": "tl.maximum", "min": "tl.minimum", "exp": "tl.exp", "sqrt": "tl.sqrt", "abs": "tl.abs"}
"""Functions of the toy language in Triton's."""
Shapes = list[list[int]]


@dataclass(frozen=True, slots=True)
class Program:
    """A program, and kernels for it."""

    name: str
    level: int
    source: str
    """In PyTorch, from ``def f`` on."""
    shapes: Callable[[Random], Shapes]
    """Draws shapes of its arguments."""
    toy: str
    triton: str

    def text(self, form: str, a: int, b: int) -> str:
        """One of its texts with constants in place of A and B."""
        return re.sub(r"\b[AB]\b", lambda found: str(a if found[0] == "A" else b), getattr(self, form))


def _sizes(rng: Random) -> tuple[int, int, int]:
    return rng.randint(2, 8), rng.randint(3, 24), rng.randint(2, 12)


def _one(rng: Random) -> Shapes:
    m, n, _ = _sizes(rng)
    return [[m, n]]


def _two(rng: Random) -> Shapes:
    m, n, _ = _sizes(rng)
    return [[m, n], [m, n]]


def _vectors(rng: Random) -> Shapes:
    m, n, _ = _sizes(rng)
    return [[m], [n]]


def _matrix_vector(rng: Random) -> Shapes:
    m, n, _ = _sizes(rng)
    return [[m, n], [n]]


def _matrices(rng: Random) -> Shapes:
    m, n, p = _sizes(rng)
    return [[m, p], [p, n]]


def _in_triton(names: str, sizes: str, kernel: str, entry: str, *, header: bool = True) -> str:
    """A program in Triton; `kernel` and `entry` are lines."""
    imports = "import torch\nimport triton\nimport triton.language as tl\n\n\n" if header else ""
    body = "\n".join(f"    {line}" for line in kernel.strip().split("\n"))
    calls = "\n".join(f"    {line}" for line in entry.strip().split("\n"))
    return (
        f"{imports}@triton.jit\ndef k({names}, out, {sizes}):\n{body}\n\n\ndef f({names}):\n{calls}\n    return out\n"
    )


def _in_toy(names: str, sizes: str, kernel: str, entry: str) -> str:
    body = "\n".join(f"    {line}" for line in kernel.strip().split("\n"))
    calls = "\n".join(f"    {line}" for line in entry.strip().split("\n"))
    given = ", ".join(part for part in (names, sizes, "out") if part)
    return f"@kernel\ndef k(i, {given}):\n{body}\n\ndef f({names}):\n{calls}\n    return out\n"


def _by_element(name: str, level: int, torch: str, scalar: str) -> Program:
    """A program of x, or of x and y, that have the same shape."""
    names = ["x", "y"] if re.search(r"\by\b", scalar) else ["x"]
    given = ", ".join(names)
    own = re.sub(r"\b([xy])\b", r"\1[i]", scalar)
    in_triton = re.sub(r"\b(max|min|exp|sqrt|abs)\(", lambda found: f"{WORDS[found[1]]}(", scalar)
    loads = [f"{one} = tl.load({one} + i, mask=on).to(tl.float32)" for one in names]
    kernel = ["i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)", "on = i < n", *loads]
    kernel.append(f"tl.store({{}} + i, {in_triton}, mask=on)".format("out"))
    entry = f"out = torch.empty_like(x)\nn = x.numel()\nk[(triton.cdiv(n, 64),)]({given}, out, n, BLOCK=64)"
    return Program(
        *(name, level, f"def f({given}):\n    return {torch}\n", _two if len(names) == 2 else _one),
        toy=_in_toy(given, "", f"out[i] = {own}", f"out = empty(x)\nk[len(x)]({given}, out)"),
        triton=_in_triton(given, "n, BLOCK: tl.constexpr", "\n".join(kernel), entry),
    )


def _by_row(name: str, torch: str, parts: tuple[str, str, str], triton: str, other: str = "0.0") -> Program:
    """A reduction of rows; `parts` are the start, the step for an element v, and the end."""
    names = ["x", "y"] if re.search(r"\by\b", torch) else ["x"]
    given = ", ".join(names)
    loads = [f"{one} = tl.load({one} + at, mask=on, other={other}).to(tl.float32)" for one in names]
    kernel = "row = tl.program_id(0)\nj = tl.arange(0, BLOCK)\non = j < n\nat = row * n + j\n"
    kernel += "\n".join([*loads, f"tl.store(out + row, {triton})"])
    entry = "m, n = x.shape\nout = torch.empty(m, dtype=x.dtype, device=x.device)\n"
    entry += f"k[(m,)]({given}, out, n, BLOCK=triton.next_power_of_2(n))"
    step = re.sub(r"\b([xy])\b", r"\1[i * n + j]", parts[1])
    own = f"s = {parts[0]}\nfor j in range(n):\n    s = {step}\nout[i] = {parts[2]}"
    return Program(
        *(name, 3, f"def f({given}):\n    return {torch}\n", _two if len(names) == 2 else _one),
        toy=_in_toy(given, "n", own, f"m, n = x.shape\nout = empty((m,), x.dtype)\nk[m]({given}, n, out)"),
        triton=_in_triton(given, "n, BLOCK: tl.constexpr", kernel, entry),
    )


def _normalised(name: str, torch: str, toy: str, triton: str) -> Program:
    """Rows of x as long as before; `toy` and `triton` are lines that compute a row."""
    kernel = "row = tl.program_id(0)\nj = tl.arange(0, BLOCK)\non = j < n\nat = row * n + j\n"
    kernel += f"v = tl.load(x + at, mask=on, other=0.0).to(tl.float32)\n{triton}\ntl.store(out + at, v, mask=on)"
    entry = "m, n = x.shape\nout = torch.empty_like(x)\nk[(m,)](x, out, n, BLOCK=triton.next_power_of_2(n))"
    return Program(
        *(name, 4, f"def f(x):\n    return {torch}\n", _one),
        toy=_in_toy("x", "n", toy, "m, n = x.shape\nout = empty(x)\nk[m](x, n, out)"),
        triton=_in_triton("x", "n, BLOCK: tl.constexpr", kernel, entry),
    )


def _sum(of: str) -> str:
    """Lines of the toy language that add something of each element of a row."""
    return f"s = 0.0\nfor j in range(n):\n    s = s + {of}"


_V: Final = "x[i * n + j]"


def _all(value: str) -> str:
    return f"for j in range(n):\n    out[i * n + j] = {value}"


_MOVED: Final = "i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)\non = i < m * n\n"
_SIZES: Final = "m, n, BLOCK: tl.constexpr"


def _moved(name: str, source: str, shapes: Callable[[Random], Shapes], toy: str, triton: str, sizes: str) -> Program:
    """A program of which each element of the result is found by its place; `sizes` are lines that make ``out``."""
    given = ", ".join(["x", "y"] if re.search(r"\by\b", source) else ["x"])
    launch = f"k[(triton.cdiv(m * n, 64),)]({given}, out, m, n, BLOCK=64)"
    here = sizes.replace("empty(", "torch.empty(").replace("x.dtype)", "dtype=x.dtype, device=x.device)")
    return Program(
        *(name, 5, f"def f({given}):\n    return {source}\n", shapes),
        toy=_in_toy(given, "m, n", toy, f"{sizes}\nk[m * n]({given}, m, n, out)"),
        triton=_in_triton(given, _SIZES, _MOVED + triton, f"{here}\n{launch}"),
    )


_ROWS: Final = "row = tl.program_id(0)\nj = tl.arange(0, BLOCK)\non = j < n\n"
_LAUNCH_ROWS: Final = "BLOCK=triton.next_power_of_2(n))"
_MATVEC: Final = Program(
    *("matrix times vector", 5, "def f(x, y):\n    return x @ y\n", _matrix_vector),
    toy=_in_toy(
        "x, y",
        "n",
        "s = 0.0\nfor j in range(n):\n    s = s + x[i * n + j] * y[j]\nout[i] = s",
        "m, n = x.shape\nout = empty((m,), x.dtype)\nk[m](x, y, n, out)",
    ),
    triton=_in_triton(
        "x, y",
        "n, BLOCK: tl.constexpr",
        f"{_ROWS}a = tl.load(x + row * n + j, mask=on, other=0.0).to(tl.float32)\n"
        "b = tl.load(y + j, mask=on, other=0.0).to(tl.float32)\ntl.store(out + row, tl.sum(a * b, 0))",
        f"m, n = x.shape\nout = torch.empty(m, dtype=x.dtype, device=x.device)\nk[(m,)](x, y, out, n, {_LAUNCH_ROWS}",
    ),
)
_MATMUL: Final = Program(
    *("matrix product", 5, "def f(x, y):\n    return x @ y\n", _matrices),
    toy=_in_toy(
        "x, y",
        "n, p",
        "s = 0.0\nfor j in range(p):\n    s = s + x[i // n * p + j] * y[j * n + i % n]\nout[i] = s",
        "m, p = x.shape\np, n = y.shape\nout = empty((m, n), x.dtype)\nk[m * n](x, y, n, p, out)",
    ),
    triton=_in_triton(
        "x, y",
        "m, n, p, M: tl.constexpr, N: tl.constexpr, P: tl.constexpr",
        "i = tl.arange(0, M)[:, None]\nj = tl.arange(0, N)[None, :]\n"
        "r = tl.arange(0, P)\n"
        "a = tl.load(x + i * p + r[None, :], mask=(i < m) & (r[None, :] < p), other=0.0)\n"
        "b = tl.load(y + r[:, None] * n + j, mask=(r[:, None] < p) & (j < n), other=0.0)\n"
        'tl.store(out + i * n + j, tl.dot(a, b, input_precision="ieee"), mask=(i < m) & (j < n))',
        "m, p = x.shape\np, n = y.shape\nout = torch.empty((m, n), dtype=x.dtype, device=x.device)\n"
        "size = [max(16, triton.next_power_of_2(s)) for s in (m, n, p)]\n"
        "k[(1,)](x, y, out, m, n, p, M=size[0], N=size[1], P=size[2])",
    ),
)
_CUMSUM: Final = Program(
    *("running sums", 5, "def f(x):\n    return torch.cumsum(x, 1)\n", _one),
    toy=_in_toy(
        "x",
        "n",
        f"s = 0.0\nfor j in range(n):\n    s = s + {_V}\n    out[i * n + j] = s",
        "m, n = x.shape\nout = empty(x)\nk[m](x, n, out)",
    ),
    triton=_in_triton(
        "x",
        "n, BLOCK: tl.constexpr",
        f"{_ROWS}v = tl.load(x + row * n + j, mask=on, other=0.0).to(tl.float32)\n"
        "tl.store(out + row * n + j, tl.cumsum(v, 0), mask=on)",
        f"m, n = x.shape\nout = torch.empty_like(x)\nk[(m,)](x, out, n, {_LAUNCH_ROWS}",
    ),
)
_TOTAL: Final = "tl.sum(tl.where(on, {}, 0.0), 0)"

PROGRAMS: Final = (
    *(
        _by_element(text, 1, text, text)
        for text in (
            *("A * x + y", "x + A * y", "x - A * y", "A * x - B * y", "A * x + B * y", "x * y + A", "(x + A) * y"),
            "A * (x - y)",
        )
    ),
    _by_element("relu", 2, "torch.relu(x)", "max(x, 0.0)"),
    _by_element("leaky relu", 2, "torch.nn.functional.leaky_relu(x, 1 / (A + 1))", "max(x, x / (A + 1))"),
    _by_element("clamp", 2, "torch.clamp(A * x, -1.0, 1.0)", "max(min(A * x, 1.0), -1.0)"),
    _by_element("distance", 2, "torch.abs(x - A * y)", "abs(x - A * y)"),
    _by_element("maximum", 2, "torch.maximum(x, A * y)", "max(x, A * y)"),
    _by_element("minimum", 2, "torch.minimum(x, y - A)", "min(x, y - A)"),
    _by_element("sigmoid", 2, "torch.sigmoid(A * x)", "1.0 / (1.0 + exp(-A * x))"),
    _by_element("silu", 2, "torch.nn.functional.silu(x)", "x / (1.0 + exp(-x))"),
    _by_element("gauss", 2, "torch.exp(-x * x / A)", "exp(-x * x / A)"),
    _by_element("root", 2, "torch.sqrt(x * x + A)", "sqrt(x * x + A)"),
    _by_element("tanh", 2, "torch.tanh(x)", "1.0 - 2.0 / (exp(2.0 * x) + 1.0)"),
    _by_element("elu", 2, "torch.nn.functional.elu(x)", "max(x, 0.0) + min(exp(x) - 1.0, 0.0)"),
    _by_row("sum", "x.sum(1)", ("0.0", "s + x", "s"), "tl.sum(x, 0)"),
    _by_row("mean", "x.mean(1)", ("0.0", "s + x", "s / n"), "tl.sum(x, 0) / n"),
    _by_row("largest", "torch.amax(x, 1)", ("-1e30", "max(s, x)", "s"), "tl.max(x, 0)", "-1e30"),
    _by_row("smallest", "torch.amin(x, 1)", ("1e30", "min(s, x)", "s"), "tl.min(x, 0)", "1e30"),
    _by_row("squares", "(x * x).sum(1) / A", ("0.0", "s + x * x", "s / A"), "tl.sum(x * x, 0) / A"),
    _by_row("dot", "(x * y).sum(1)", ("0.0", "s + x * y", "s"), "tl.sum(x * y, 0)"),
    _by_row("norm", "torch.abs(x).sum(1)", ("0.0", "s + abs(x)", "s"), "tl.sum(tl.abs(x), 0)"),
    _by_row("exponentials", "torch.exp(x).sum(1)", ("0.0", "s + exp(x)", "s"), _TOTAL.format("tl.exp(x)")),
    _normalised(
        *("softmax", "torch.softmax(x, 1)", f"{_sum(f'exp({_V})')}\n{_all(f'exp({_V}) / s')}"),
        f"v = tl.exp(v)\nv = v / {_TOTAL.format('v')}",
    ),
    _normalised(
        *("centred", "x - x.mean(1, keepdim=True)", f"{_sum(_V)}\n{_all(f'{_V} - s / n')}"), "v = v - tl.sum(v, 0) / n"
    ),
    _normalised(
        *("shares", "x / torch.abs(x).sum(1, keepdim=True)", f"{_sum(f'abs({_V})')}\n{_all(f'{_V} / s')}"),
        "v = v / tl.sum(tl.abs(v), 0)",
    ),
    _normalised(
        "root mean square",
        "x * torch.rsqrt((x * x).mean(1, keepdim=True) + 1e-5)",
        f"{_sum(f'{_V} * {_V}')}\n{_all(f'{_V} / sqrt(s / n + 1e-5)')}",
        "v = v / tl.sqrt(tl.sum(v * v, 0) / n + 1e-5)",
    ),
    _normalised(
        "layer norm",
        "torch.nn.functional.layer_norm(x, x.shape[1:])",
        f"{_sum(_V)}\nc = s / n\nq = 0.0\nfor j in range(n):\n    q = q + ({_V} - c) * ({_V} - c)\n"
        + _all(f"({_V} - c) / sqrt(q / n + 1e-5)"),
        f"v = v - tl.sum(v, 0) / n\nv = v / tl.sqrt({_TOTAL.format('v * v')} / n + 1e-5)",
    ),
    _normalised(
        "unit rows",
        "x / torch.sqrt((x * x).sum(1, keepdim=True) + A)",
        f"{_sum(f'{_V} * {_V}')}\n{_all(f'{_V} / sqrt(s + A)')}",
        "v = v / tl.sqrt(tl.sum(v * v, 0) + A)",
    ),
    _moved(
        *("transpose", "x.T.contiguous()", _one, "out[i % n * m + i // n] = x[i]"),
        "tl.store(out + i % n * m + i // n, tl.load(x + i, mask=on), mask=on)",
        "m, n = x.shape\nout = empty((n, m), x.dtype)",
    ),
    _moved(
        *("outer product", "x[:, None] * y[None, :]", _vectors, "out[i] = x[i // n] * y[i % n]"),
        "tl.store(out + i, tl.load(x + i // n, mask=on) * tl.load(y + i % n, mask=on), mask=on)",
        "m, n = x.shape[0], y.shape[0]\nout = empty((m, n), x.dtype)",
    ),
    _moved(
        *("mirrored", "torch.flip(x, (1,))", _one, "out[i] = x[i // n * n + n - 1 - i % n]"),
        "tl.store(out + i, tl.load(x + i // n * n + n - 1 - i % n, mask=on), mask=on)",
        "m, n = x.shape\nout = empty((m, n), x.dtype)",
    ),
    _MATVEC,
    _MATMUL,
    _CUMSUM,
)
BY_LEVEL: Final[Mapping[int, tuple[Program, ...]]] = {
    level: tuple(program for program in PROGRAMS if program.level <= level) for level in range(1, 6)
}
