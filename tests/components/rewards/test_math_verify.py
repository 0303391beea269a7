import importlib.util
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from posttrain.audit import Subject
from posttrain.audit.probes import hanging
from posttrain.audit.samples import sample_tasks
from posttrain.components.rewards import Reward
from posttrain.components.rewards.math_verify import MathVerify
from posttrain.errors import UserError
from posttrain.types import Task
from tests.components.rewards.judging import attempt, judge, score_all

pytestmark = pytest.mark.skipif(importlib.util.find_spec("math_verify") is None, reason="needs math-verify")


@pytest.fixture(scope="module")
def reward() -> MathVerify:
    """One for all, as its workers are warm."""
    return MathVerify(time_limit=20.0)


def asked(answer: str) -> Task:
    return Task(key="task", prompt="What is the value that is sought here?", answer=answer)


EQUAL = [
    ("42", "42"),
    ("7" * 5000, "7" * 5000),  # math-verify: False, beyond Python's 4300 digits
    (r"50\%", "50%"),
    ("50%", "0.5"),
    (r"\sqrt{2}", r"\frac{2}{\sqrt{2}}"),
    (r"2\sqrt{2}", r"\sqrt{8}"),
    ("sqrt(2)", r"\sqrt{2}"),
    ("x^2+2x+1", "(x+1)^2"),
    (r"\{1,2\}", r"\{2,1\}"),
    (r"\pi/2", r"\frac{\pi}{2}"),
    ("0.5x", r"\frac{x}{2}"),
    (r"\frac{3}{2}+1", "2.5"),
    ("x<3", "3>x"),
    ("1+i", "i+1"),
    ("ln(2)", r"\ln 2"),
    ("5", "x = 5"),
    ("5", "5 cm"),
    (r"1,234\pi", r"1234\pi"),
    (r"(3, \frac{\pi}{2})", r"\left( 3, \frac{\pi}{2} \right)"),
    (r"\text{east}", "east"),
    (r"\frac{1}{2}", r"\int_0^1 x dx"),
    (r"\begin{pmatrix}1&2\\3&4\end{pmatrix}", r"\begin{pmatrix} 1 & 2 \\ 3 & 4 \end{pmatrix}"),
]
UNEQUAL = [
    ("1", r"1\%"),  # math-verify: equal
    ("1/3", "0.333333333"),  # math-verify: equal
    (r"\sqrt{2}", "1.41421356"),  # math-verify: equal
    ("5", "5 or 6"),  # math-verify: equal
    ("5", "5, 6"),
    (r"\{5, 6\}", "5"),
    ("5", "5x"),
    ("(1,2)", "(2,1)"),
    ("[0,1)", "(0,1)"),
    ("2x+3", "2x+3=0"),
    ("north", "east"),
    ("1", "I think it is 1 or so"),
    ("1", "__import__('os').getpid()"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("gold", "answer"), EQUAL)
def test_equal(reward: MathVerify, gold: str, answer: str) -> None:
    score = judge(reward, rf"\boxed{{{answer}}}", asked(gold))
    assert (score.value, score.status) == (1.0, "ok"), score.explanation


@pytest.mark.parametrize(("gold", "answer"), UNEQUAL)
def test_unequal(reward: MathVerify, gold: str, answer: str) -> None:
    score = judge(reward, rf"\boxed{{{answer}}}", asked(gold))
    assert (score.value, score.status) == (0.0, "wrong"), score.explanation


def test_what_may_be_set() -> None:
    assert judge(MathVerify(percent="ignored"), "1%", asked("1")).status == "ok"
    close = MathVerify(tolerance=0.001, time_limit=20.0)
    assert judge(close, "1.4142", asked(r"\sqrt{2}")).status == "ok"
    assert judge(close, "1.41", asked(r"\sqrt{2}")).status == "wrong"
    priced = MathVerify(right=2.0, wrong=-1.0, missing=-2.0)
    assert [judge(priced, text, asked("4")).value for text in ("4", "5", "")] == [2.0, -1.0, -2.0]


def test_an_answer_that_takes_for_ever_is_an_error_and_harms_no_other() -> None:
    reward = MathVerify(time_limit=0.5)
    texts = [
        r"\boxed{x+x}",
        r"\boxed{9^{9^{9^9}}}",
        r"\boxed{2x}",
        r"\boxed{\binom{1000000000}{500000000}}",
        r"\boxed{x}",
    ]
    scores = score_all(reward, *(attempt(text, asked("2x")) for text in texts))
    assert [score.status for score in scores] == ["ok", "error", "ok", "error", "wrong"]
    assert "timeout_cpu" in scores[1].explanation and "0.5 s of processor time" in scores[1].explanation


def test_hostile_answers_are_many_and_distinct() -> None:
    assert len(set(hanging.ANSWERS.values())) == len(hanging.ANSWERS) >= 100


@pytest.mark.slow
@pytest.mark.parametrize("gold", ["2", "x+2"])
def test_hostile_answers_are_never_rewarded_and_always_end(gold: str) -> None:
    """Against a number and an expression; `docs/measured/trust/hostile_answers.json`."""
    reward = MathVerify(time_limit=0.25)
    probes = list(hanging.probes(Subject(task=asked(gold))))
    scores = score_all(reward, *(attempt(probe.text, asked(gold)) for probe in probes))
    assert {score.status for score in scores} <= {"wrong", "error"}
    assert all(score.explanation for score in scores)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["match", "countdown", "in_region", "label", "reasoning_gym"])
def test_the_other_rewards_that_read_mathematics_reward_no_hostile_answer_either(kind: str) -> None:
    if kind == "reasoning_gym" and importlib.util.find_spec("reasoning_gym") is None:
        pytest.skip("needs reasoning-gym")
    reward, task = TypeAdapter(Reward).validate_python(kind), sample_tasks(kind)[0]
    probes = list(hanging.probes(Subject(task=task)))
    scores = score_all(reward, *(attempt(probe.text, task) for probe in probes))
    assert {score.status for score in scores} <= {"wrong", "error"}
    assert all(score.value == 0.0 for score in scores)


@pytest.mark.slow
def test_text_is_never_evaluated(tmp_path: Path) -> None:
    """What the grammar refuses, and what SymPy itself would evaluate were it asked to."""
    code = """
        import sys
        from posttrain.grading.math_worker import open_comparison
        compare = open_comparison(None)
        import sympy
        for reader in (sympy.sympify, sympy.parse_expr, sympy.S):
            try:
                reader("open('made', 'w')")
            except Exception:
                pass
        assert sympy.Number("2.50") == sympy.Rational(5, 2)
        print(compare({"gold": "2", "answer": "open('made', 'w')", "tolerance": "0"})["equal"])
    """
    import textwrap

    command = [sys.executable, "-c", textwrap.dedent(code)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=200)
    assert done.stdout.strip() == "False", done.stderr
    assert not (tmp_path / "made").exists()


def test_a_missing_library_is_named_with_its_command(monkeypatch: pytest.MonkeyPatch) -> None:
    def find(name: str, *_: Any) -> None:
        return None

    monkeypatch.setattr(importlib.util, "find_spec", find)
    with pytest.raises(UserError, match=r"pip install 'posttrain\[math\]'"):
        MathVerify().prepare()


def test_each_text_of_a_list_is_right(reward: MathVerify) -> None:
    task = asked('["7", "x+1"]')
    assert [judge(reward, text, task).status for text in ("7", "x+1", "8")] == ["ok", "ok", "wrong"]
