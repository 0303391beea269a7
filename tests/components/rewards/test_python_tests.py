"""Right functions are rewarded; wrong ones that try to pass are not, whatever they try."""

import pytest

from posttrain.components.rewards.python_tests import PythonTests, checks_of
from posttrain.sandbox import Limits
from posttrain.types import Task
from tests.components.rewards.judging import attempt as attempted
from tests.components.rewards.judging import judge, score_all
from tests.components.rewards.programs import tier_for

TESTS = ["assert f(2) == 4", "assert f(10) == 100", {"call": "f(-3)", "expected": 9}]
TASK = Task(key="square", prompt="Write f.", fields={"tests": TESTS})


@pytest.fixture
def reward() -> PythonTests:
    made = PythonTests(limits=Limits(cpu_s=2.0, wall_s=120.0), weakest=tier_for())
    made.prepare()
    return made


@pytest.mark.parametrize(
    "code",
    [
        "def f(x):\n    return x * x",
        "Here it is:\n```python\ndef f(x): return x ** 2\n```\nThat was it.",
        "```\ndef f(x): return 0\n```\nNo, better:\n```py\nf = lambda x: x * x\n```",
        "import sys\nprint('noise')\nsys.stdout.write('more')\ndef f(x):\n    print(x)\n    return x * float(x)",
    ],
)
def test_right_programs(reward: PythonTests, code: str) -> None:
    assert judge(reward, code, TASK).status == "ok"


CHEATS = {
    "ends well at once": "import os\nos._exit(0)",
    "ends well by an exception": "raise SystemExit(0)",
    "equals everything": "class A:\n    def __eq__(self, o): return True\n    __hash__ = None\ndef f(x): return A()",
    "an int that equals everything": "class A(int):\n    def __eq__(self, o): return True\ndef f(x): return A(1)",
    "answers for the tests": "import os, json\nfor n in range(3): [os.write(d, json.dumps([n, ['value', ['bool', True]]])"  # noqa: E501
    ".encode() + b'\\n') for d in range(3, 9) if not os.set_inheritable(2, True)]\nos._exit(0)",
    "changes the encoder": "import sys\nsys._getframe(1).f_globals['encode'] = lambda *a: ['passed', True]\ndef f(x): return 0",  # noqa: E501
    "changes eval": "import builtins\nbuiltins.eval = lambda *a: True\ndef f(x): return 0",
    "changes json": 'import json\njson.dumps = lambda *a: \'[0, ["value", "ok"]]\'\ndef f(x): return 0',
    "looks for the answers": "import gc\nfound = [o for o in gc.get_objects() if isinstance(o, dict) and 'expected' in o]\n"  # noqa: E501
    "found += [o for o in gc.get_objects() if isinstance(o, list) and 100 in o]\n"
    "def f(x): return found[0]['expected'] if found else None",
    "looks in its caller": "import sys\ndef f(x):\n    frame = sys._getframe()\n    while frame:\n"
    "        for v in list(frame.f_locals.values()):\n            if v == [100] or v == 100: return v\n"
    "        frame = frame.f_back\n    return 0",
    "reads the tests from disk": "import glob\ntexts = [open(p, errors='replace').read() for p in glob.glob('/box/*')]\n"  # noqa: E501
    "def f(x): return len(texts)",
    "sends a pickle": "import os, pickle\nclass A:\n    def __reduce__(self): return (os.system, ('true',))\n"
    "def f(x): return pickle.dumps(A())",
    "right for the first test only": "def f(x): return 4",
    "right as text": "def f(x): return str(x * x)",
    "raises an assertion that is caught": "def f(x): raise AssertionError",
    "hides in a flood": "def f(x):\n    print('4\\n' * 1000000)\n    return [4, 100, 9]",
    "nests without end": "def f(x):\n    a = []\n    for _ in range(100000): a = [a]\n    return a",
    "a huge number": "def f(x): return 10 ** 100000",
    "never ends": "while True: pass",
}


@pytest.mark.parametrize("name", CHEATS)
@pytest.mark.slow
def test_no_wrong_program_passes(reward: PythonTests, name: str) -> None:
    score = judge(reward, CHEATS[name], TASK)
    assert score.status == "wrong" and score.value == 0.0, score.explanation


@pytest.mark.slow
def test_a_share_is_rewarded_where_that_is_asked_for() -> None:
    reward = PythonTests(partial=True, weakest=tier_for(), right=1.0, wrong=-0.5)
    assert judge(reward, "def f(x): return 4 if x == 2 else 9", TASK).value == pytest.approx(-0.5 + 1.5 * 2 / 3)


@pytest.mark.slow
def test_tests_after_a_hang_count_as_failed_and_those_before_as_passed(reward: PythonTests) -> None:
    hangs = "def f(x):\n    while x == 10: pass\n    return x * x"
    score = judge(reward, hangs, TASK)
    assert score.value == 0.0 and "fails 2 of 3" in score.explanation and "timeout_cpu" in score.explanation


def test_the_same_program_is_run_once(reward: PythonTests, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = []
    real = PythonTests._score
    monkeypatch.setattr(PythonTests, "_score", lambda self, t, code: calls.append(code) or real(self, t, code))
    one, two = "def f(x): return x * x", "def f(x): return x"
    scores = score_all(reward, *(attempted(code, TASK) for code in (one, two, one, one)))
    assert [s.value for s in scores] == [1.0, 0.0, 1.0, 1.0] and sorted(calls) == sorted([one, two])


def test_a_program_that_is_cut_is_none(reward: PythonTests) -> None:
    score = judge(reward, "def f(x):\n    return x * x", TASK, stop_reason="length")
    assert score.status == "wrong" and "no program" in score.explanation
    whole = "```python\ndef f(x): return x * x\n```\nand so"
    assert judge(reward, whole, TASK, stop_reason="length").status == "ok"


def test_asserts_are_split() -> None:
    calls = [
        (c.call, c.expected) for c in checks_of(["assert g([1], a=2) == (1, 2)", "assert g(3)", "assert not g(4)"])
    ]
    assert calls == [
        ("g([1], a=2)", ["tuple", [["int", "0x1"], ["int", "0x2"]]]),
        ("bool(g(3))", ["bool", True]),
        ("bool(g(4))", ["bool", False]),
    ]


@pytest.mark.parametrize(
    "tests",
    [None, [], "assert f(1) == 2", ["assert f(1) == g(2)"], ["assert f(1) < 2"], ["f(1) == 2"], [3], ["assert ("]],
)
def test_tests_that_cannot_be_split_are_an_error(reward: PythonTests, tests: object) -> None:
    assert judge(reward, "def f(x): return 2", Task(key="t", prompt="?", fields={"tests": tests})).status == "error"
