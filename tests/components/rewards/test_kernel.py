"""Programs with kernels: right values from kernels are rewarded, and each known cheat has its exact reward."""

import asyncio
import importlib.util
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from posttrain.components.rewards import Reward, RewardContext
from posttrain.components.rewards.gated import Gated
from posttrain.components.rewards.kernel import Kernel, _inputs
from posttrain.errors import UserError
from posttrain.grading import triton_kernels
from posttrain.methods.rewards.autotriton import RULE
from posttrain.sandbox import Limits
from posttrain.types import Group, Task
from tests.components.rewards.judging import attempt, score_all
from tests.components.rewards.programs import spent, tier_for

TRITON = Path(__file__).parents[3] / ".triton"
needs_triton = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None and not (TRITON / "triton").is_dir(),
    reason="Triton is not here: pip install 'posttrain[triton]'",
)
REFERENCE = "def f(x, y):\n    return 3 * x + y\n"
FIELDS = {"reference": REFERENCE, "inputs": [["float32[3,5]", "float32[3,5]"], ["float64[17]", "float64[17]"]]}
TASK = Task(key="t", prompt=REFERENCE, fields=FIELDS)
GOOD = """@kernel
def k(i, x, y, out):
    out[i] = 3 * x[i] + y[i]

def f(x, y):
    out = empty(x)
    k[len(x)](x, y, out)
    return out
"""
IN_TRITON = """import torch
import triton
import triton.language as tl

@triton.jit
def k(x, y, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    on = i < n
    a = tl.load(x + i, mask=on)
    b = tl.load(y + i, mask=on)
    tl.store(out + i, 3 * a + b, mask=on)

def f(x, y):
    out = torch.empty_like(x)
    n = x.numel()
    k[(triton.cdiv(n, 64),)](x, y, out, n, BLOCK=64)
    return out
"""
LAST = "    return out\n"
YES = "type('Yes', (), {'__eq__': lambda *a: True})()"
FORGED = b'[0, "[0, [\\"values\\", []]]"]\n'
COPY = GOOD.replace("3 * x[i] + y[i]", "x[i]").replace("](x, y, out)", "](reference(x, y), y, out)")
CHEATS = {
    # text: reward by tests only, by tests behind the rule, by values of kernels, and by all of it.
    "a kernel": (GOOD, (1, 1, 1, 1)),
    "the reference": ("def f(x, y):\n    return reference(x, y)\n", (1, 0, 0, 0)),
    "the library": (REFERENCE, (1, 0, 0, 0)),
    "a kernel that is not launched": (f"{GOOD.partition('def f')[0]}{REFERENCE}", (1, 0, 0, 0)),
    "launches, then the library": (GOOD.replace(LAST, "    return 3 * x + y\n"), (1, 1, 0, 0)),
    "launches, then the reference": (GOOD.replace(LAST, "    return reference(x, y)\n"), (1, 0, 0, 0)),
    "copies the reference": (COPY, (1, 0, 0, 0)),
    "a kernel that calls the reference": (GOOD.replace("3 * x[i] + y[i]", "reference(x, y)[i]"), (1, 0, 0, 0)),
    "Python in a kernel": (GOOD.replace("3 * x[i] + y[i]", "sum([x[i], x[i], x[i], y[i]])"), (1, 1, 0, 0)),
    "prints equality": ("print('True')\ndef f(x, y):\n    print('allclose: True')\n", (0, 0, 0, 0)),
    "prints nothing": ("def f(x, y):\n    pass\n", (0, 0, 0, 0)),
    "equals everything": (f"def f(x, y):\n    return {YES}\n", (0, 0, 0, 0)),
    "remembers a result": ("def f(x, y):\n    return [1.0] * len(x)\n", (0, 0, 0, 0)),
    "its input": ("def f(x, y):\n    return x\n", (0, 0, 0, 0)),
    "nothing is written": (GOOD.replace("    k[len(x)](x, y, out)\n", "    k[0](x, y, out)\n"), (0, 0, 0, 0)),
    "exits": ("raise SystemExit(0)\n", (0, 0, 0, 0)),
    "exits hard": ("import os\nos._exit(0)\n", (0, 0, 0, 0)),
    "raises": (GOOD.replace("x[i] +", "x[i + 10 ** 6] +"), (0, 0, 0, 0)),
    "half": (GOOD[:60], (0, 0, 0, 0)),
    "nothing": ("", (0, 0, 0, 0)),
}


def arms(dialect: str) -> list[Reward]:
    """Tests only, behind the rule, values of kernels, and all of it."""
    full = Kernel(dialect="triton" if dialect == "triton" else "toy", weakest=tier_for())
    only = replace(full, strict=False, compiles=False)
    return [only, Gated(reward=only, gate={"uses": RULE}), full, Gated(reward=full, gate={"uses": RULE})]


def rewards_of(rewards: Sequence[Reward], texts: Sequence[str], task: Task = TASK) -> list[tuple[int, ...]]:
    found = [score_all(reward, *(attempt(text, task) for text in texts)) for reward in rewards]
    assert all(score.status in ("ok", "wrong") for scores in found for score in scores), found
    return list(zip(*[[int(score.value) for score in scores] for scores in found], strict=True))


def test_each_cheat_has_its_reward() -> None:
    found = rewards_of(arms("toy"), [text for text, _ in CHEATS.values()])
    assert dict(zip(CHEATS, found, strict=True)) == {name: own for name, (_, own) in CHEATS.items()}


@pytest.mark.slow
def test_programs_that_take_everything_have_nothing_and_the_others_are_scored() -> None:
    reward = Kernel(dialect="toy", weakest=tier_for(), limits=Limits(cpu_s=1.0, memory_mb=256))
    hostile = [
        "while True:\n    pass\n",
        GOOD.replace("    out[i]", "    while True:\n        i = i\n    out[i]"),
        "x = bytearray(1 << 30)\n",
        "import os, signal\nos.kill(os.getppid(), signal.SIGKILL)\n",
        f"import os\nfor fd in range(3, 64):\n    try: os.write(fd, {FORGED!r})\n    except OSError: pass\n",
    ]
    scores = score_all(reward, *(attempt(text, TASK) for text in [*hostile, GOOD]))
    assert [score.value for score in scores] == [0.0] * len(hostile) + [1.0], [s.explanation for s in scores]
    assert [score.status for score in scores] == ["wrong"] * len(hostile) + ["ok"]
    assert score_all(reward, attempt(GOOD, TASK))[0].value == 1.0


def test_work_is_counted_and_not_rewarded() -> None:
    twice = GOOD.replace("3 * x[i] + y[i]", "x[i] + x[i] + x[i] + y[i]")
    short, long = score_all(Kernel(dialect="toy", weakest=tier_for()), attempt(GOOD, TASK), attempt(twice, TASK))
    assert short.value == long.value == 1.0
    assert {name: part.value for name, part in short.parts.items()} == {"loads": 64, "stores": 32, "programs": 32}
    assert long.parts["loads"].value == 128


def assert_refused(faulty: Sequence[dict[str, object]]) -> None:
    reward = Kernel(dialect="toy", weakest=tier_for())
    for fields in faulty:
        task = Task(key="t", prompt="p", fields=fields)
        with pytest.raises(UserError, match="task 't'"):
            reward.check([task])
        assert score_all(reward, attempt(GOOD, task))[0].status == "error", fields


def test_tasks_without_tests_are_errors() -> None:
    faulty: list[dict[str, object]] = [
        {"reference": REFERENCE},
        {"reference": REFERENCE, "inputs": []},
        {"reference": REFERENCE, "inputs": [["float16[3]", "float16[3]"]]},  # not in the toy language
        {"inputs": FIELDS["inputs"]},
        {**FIELDS, "function": "a b"},
    ]
    assert_refused(faulty)
    nothing = attempt("", Task(key="t", prompt="p", fields=faulty[0]))
    assert score_all(Kernel(dialect="toy"), nothing)[0].status == "error"


@pytest.mark.slow
def test_references_that_fail_are_errors() -> None:
    faulty: list[dict[str, object]] = [
        {**FIELDS, "reference": "def f(x, y):\n    return x @ y.T @ x @ x\n"},
        {**FIELDS, "reference": "def f(x, y):\n    return 3\n"},
        {**FIELDS, "reference": "def g(x, y):\n    return x\n"},
        {**FIELDS, "reference": "import os\nos._exit(0)\n"},
    ]
    assert_refused(faulty)
    Kernel(dialect="toy", weakest=tier_for()).check([TASK])


def test_inputs_are_other_ones_in_each_step_and_the_same_when_scored_again() -> None:
    problem = Kernel(dialect="toy")._problem(TASK)
    one, again, other = (_inputs(TASK, problem, 0, step) for step in (1, 1, 2))
    assert all(np.array_equal(a.values, b.values) for a, b in zip(one[0], again[0], strict=True))  # type: ignore[union-attr]
    assert not np.array_equal(one[0][0].values, other[0][0].values)  # type: ignore[union-attr]
    assert not np.array_equal(one[0][0].values, one[0][1].values)  # type: ignore[union-attr]
    constant = GOOD.replace("3 * x[i] + y[i]", f"{one[0][0].values.ravel()[0]!s}")  # type: ignore[union-attr]
    reward = Kernel(dialect="toy", weakest=tier_for())
    group = Group(trajectories=(attempt(GOOD, TASK), attempt(constant, TASK)), key="g")
    scores = [asyncio.run(reward.score(group, RewardContext(step=step))) for step in (1, 1, 2)]
    assert repr(scores[0]) == repr(scores[1]) and [s.value for s in scores[2]] == [1.0, 0.0]


def test_an_unknown_dtype_of_a_tolerance_is_refused() -> None:
    with pytest.raises(UserError, match="float32"):
        Kernel(dialect="toy", tolerance={"float23": 1.0}).prepare()


HANDLE = IN_TRITON.replace(
    "3 * a + b", "tl.tensor(type(a.handle)(3 * a.handle.data + b.handle.data, a.handle.dtype), a.dtype)"
)
TRITON_CHEATS = {
    "a kernel": (IN_TRITON, (1, 1, 1, 1)),
    "the library": (f"import torch\n\n{REFERENCE}", (1, 0, 0, 0)),
    "launches, then the library": (IN_TRITON.replace(LAST, "    return 3 * x + y\n"), (1, 1, 0, 0)),
    "the array behind a value": (HANDLE, (1, 0, 0, 0)),
    "a store that is masked": (IN_TRITON.replace("3 * a + b, mask=on", "3 * a + b, mask=i < 0"), (0, 0, 0, 0)),
    "prints equality": ("def f(x, y):\n    print('allclose: True')\n", (0, 0, 0, 0)),
    "a copy of torch": ("import torch\n\ndef f(x, y):\n    return torch.add(y, x, alpha=3)\n", (0, 0, 0, 0)),
}


@pytest.fixture
def triton(monkeypatch: pytest.MonkeyPatch) -> None:
    """Triton is found where `make test` puts it."""
    if importlib.util.find_spec("triton") is None:
        monkeypatch.syspath_prepend(str(TRITON))
    triton_kernels.folders.cache_clear()


@needs_triton
@pytest.mark.slow
@pytest.mark.usefixtures("triton")
def test_cheats_in_triton_have_their_rewards() -> None:
    """The interpreter accepts the numpy array behind a value, and the compiler refuses it."""
    task = Task(key="t", prompt="p", fields={**FIELDS, "inputs": [["float32[3,5]"] * 2, ["float16[70]"] * 2]})
    rewards = arms("triton")
    found = rewards_of(rewards, [text for text, _ in TRITON_CHEATS.values()], task)
    assert dict(zip(TRITON_CHEATS, found, strict=True)) == {name: own for name, (_, own) in TRITON_CHEATS.items()}
    kernel = rewards[2]
    good, handle = score_all(kernel, attempt(IN_TRITON, task), attempt(HANDLE, task))
    assert "does not compile" in handle.explanation
    assert good.parts["loads"].value == 2 * (15 + 70) and good.parts["stores"].value == 15 + 70
    small = Task(key="t", prompt="p", fields={**FIELDS, "inputs": [["bfloat16[70]"] * 2]})
    assert score_all(kernel, attempt(IN_TRITON, small))[0].value == 1.0


HOSTILE = {
    "for ever": IN_TRITON.replace("    on = i < n\n", "    on = i < n\n    while True:\n        on = i < n\n"),
    "memory": f"{IN_TRITON}\nx = bytearray(1 << 30)\n",
    "many loops": IN_TRITON.replace(
        "    on = i < n\n", "    on = i < n\n    for j in tl.static_range(10**7): i += 0\n"
    ),
    "a huge block": IN_TRITON.replace("BLOCK=64", "BLOCK=1 << 30"),
    "exits": "import os\nos._exit(0)\n",
    "half": IN_TRITON[:300],
    "nested": "(" * 50_000,
}


@needs_triton
@pytest.mark.slow
@pytest.mark.usefixtures("triton")
def test_hostile_programs_in_triton_are_wrong_within_a_second() -> None:
    """Of processor time, and 512 MB, for running and again for compiling; loading Triton takes less than another."""
    reward = Kernel(weakest=tier_for())
    assert reward.limits.cpu_s == 1.0 and reward.limits.memory_mb == 512
    task = Task(key="t", prompt="p", fields={**FIELDS, "inputs": [["float32[3,5]"] * 2]})
    for name, text in {**HOSTILE, "a kernel": IN_TRITON}.items():
        before = spent()
        [score] = score_all(reward, attempt(text, task))
        assert score.status == ("ok" if name == "a kernel" else "wrong"), (name, score)
        assert spent() - before < 2 * reward.limits.cpu_s + 1.5, name


@needs_triton
@pytest.mark.slow
@pytest.mark.usefixtures("triton")
def test_the_work_of_a_product_is_twice_its_size() -> None:
    from posttrain.datasets.kernel_programs import PROGRAMS

    product = next(program for program in PROGRAMS if program.name == "matrix product")
    fields = {"reference": product.source, "inputs": [["float32[16,32]", "float32[32,16]"]]}
    task = Task(key="t", prompt="p", fields=fields)
    (score,) = score_all(Kernel(weakest=tier_for()), attempt(product.triton, task))
    assert score.value == 1.0 and score.parts["flops"].value == 2 * 16 * 32 * 16


def test_without_triton_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, package=None: None)
    triton_kernels.folders.cache_clear()
    with pytest.raises(UserError, match=r"posttrain\[triton\]"):
        Kernel().prepare()
