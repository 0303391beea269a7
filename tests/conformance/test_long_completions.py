"""Long completions are cut or refused before anything takes time, and the score states it."""

import time
from typing import Any

import pytest
from pydantic import TypeAdapter

from posttrain.components.rewards import Reward
from posttrain.sandbox import missing_programs
from posttrain.types import Task
from tests.components.rewards.judging import attempt, score_all
from tests.conformance._reward_cases import CASES, IN_A_SANDBOX, LIBRARIES

WORDS = "word 12 " * 25_000
ROUGE = {"type": "text_similarity", "input": "{{ sample.output_text }}", "reference": "{{ item.reference_answer }}"}
SHOP = '{"rationale": "so", "action": {"type": "click", "name": "%s"}}'
PROGRAM = "def f(a):\n    return a\n" + "# more\n" * 5000
REPAIR = CASES["patch_similarity"].gold
Given = tuple[str, dict[str, Any], str, str]
GIVEN: dict[str, Given] = {
    **{
        f"text_similarity, {measure}": ("text_similarity", {"measure": measure}, WORDS, f"of the first {most}")
        for measure, most in (
            ("edit", "4000 characters"),
            ("bleu", "4000 characters"),
            ("chrf", "4000 characters"),
            ("ter", "50 words"),
        )
    },
    "translated": (
        "translated",
        {},
        f"<think>-</think><translate>{WORDS}</translate>",
        "of the first 4,000 characters",
    ),
    "semantic": ("semantic", {"numbers": False}, WORDS, "of the first 2000 characters"),
    "next_action": ("next_action", {}, SHOP % ("word " * 4500), "of the first 4000 words"),
    "next_action, longer": ("next_action", {}, SHOP % WORDS, " characters, 100000 are read"),
    "openai_grader, fuzzy": ("openai_grader", {**ROUGE, "pass_threshold": 0.5}, WORDS, "of the first 4000 characters"),
    **{
        f"openai_grader, {metric}": (
            "openai_grader",
            {**ROUGE, "evaluation_metric": metric, "pass_threshold": 0.5},
            WORDS,
            "of the first 4000 words",
        )
        for metric in ("rouge_1", "rouge_5", "rouge_l")
    },
    "math_verify": ("math_verify", {}, rf"\boxed{{{'x+' * 1500}1}}", "longer than 2000 characters"),
    "patch_similarity": ("patch_similarity", {}, f"{REPAIR}\n{WORDS}", "of the first 32768 characters"),
    "refactored": ("refactored", {}, PROGRAM, "longer than 16384 characters"),
    "uses": ("uses", {}, PROGRAM, "longer than 16384 characters"),
    "kernel": ("kernel", {}, PROGRAM, "longer than 16384 characters"),
    "python_tests": ("python_tests", {}, PROGRAM, "longer than 16384 characters"),
    "io_tests": ("io_tests", {}, PROGRAM, "longer than 16384 characters"),
    "sql": ("sql", {}, PROGRAM, "longer than 16384 characters"),
    "suite": ("suite", {}, f"{CASES['suite'].gold}\n{PROGRAM}", "of the first 16384 characters"),
    "suite, many": (
        "suite",
        {},
        "".join(f"assert f({n}) == {n}\n" for n in range(700)),
        "at most 100 tests are run",
    ),
    "branch_distance": ("branch_distance", {}, "1, " * 2000, "of at most 2000 characters"),
}
"""Name: kind, settings, completion, and what the explanation states."""
CPU_S = 2.0
"""Processor time of a score; a second where nothing else is busy."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (own[0] in IN_A_SANDBOX)) for name, own in GIVEN.items()]
)
def test_what_is_cut_is_stated(name: str) -> None:
    kind, settings, text, stated = GIVEN[name]
    if kind in LIBRARIES:
        pytest.importorskip(LIBRARIES[kind])
    if settings.get("measure") in ("chrf", "ter"):
        pytest.importorskip("sacrebleu")
    if missing := missing_programs(IN_A_SANDBOX.get(kind, ())):
        pytest.skip(f"needs {' and '.join(missing)}")
    case = CASES[kind]
    given = settings if "type" in settings else {**case.settings, **settings}
    reward = TypeAdapter(Reward).validate_python({"kind": kind, **given})
    score_all(reward, attempt(case.gold, case.task))  # workers and libraries are there
    start = time.process_time()
    [score] = score_all(reward, attempt(text, case.task))
    assert score.status in ("ok", "wrong") and stated in score.explanation, score
    assert time.process_time() - start < CPU_S


def test_a_long_reference_is_cut_too() -> None:
    reward = TypeAdapter(Reward).validate_python({"kind": "text_similarity"})
    [score] = score_all(reward, attempt("word", Task(key="t", prompt="t", answer=WORDS)))
    assert "of the first 4000 characters" in score.explanation


def test_short_texts_have_no_note() -> None:
    for kind in ("text_similarity", "openai_grader", "next_action"):
        case = CASES[kind]
        [score] = score_all(
            TypeAdapter(Reward).validate_python({"kind": kind, **case.settings}), attempt(case.gold, case.task)
        )
        assert "of the first" not in score.explanation
