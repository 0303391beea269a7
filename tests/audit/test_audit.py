import asyncio
import importlib.util
import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from pydantic import TypeAdapter

from posttrain.audit import Probe, Subject, auditing, kinds, kinds_for, probes_of
from posttrain.audit.auditing import Report, Settings, audit
from posttrain.audit.samples import sample_tasks
from posttrain.cli import main
from posttrain.components.rewards import Reward
from posttrain.errors import UserError
from posttrain.types import Score, Task
from tests.components.rewards.programs import tier_for

TASKS = [
    Task(key=str(n), prompt=f"What do you get for question number {n}?", answer=a) for n, a in ((1, "42"), (2, "7"))
]


@dataclass(frozen=True)
class Shipped:
    """How the audit of a shipped reward is configured."""

    settings: dict[str, Any] = field(default_factory=dict)
    how: dict[str, Any] = field(default_factory=dict)
    library: str = ""
    programs: tuple[str, ...] | None = None
    """Programs that must be installed for a reward that runs programs."""
    tasks: Any = None


GRADER = """
def score(completion, answer):
    return completion.removeprefix("Answer: ").strip() == answer
"""
QUICK = {"cpu_s": 0.5, "wall_s": 30.0}
"""Limits that end a program soon."""
SHIPPED = {
    "brevity": Shipped({"correct": "match"}),
    "routed": Shipped({"parts": {"sums": "match"}, "other": "match"}),
    "answer_set": Shipped(how={"form": "<answer>{answer}</answer>", "skip": ["equivalent"]}),  # items are no numbers
    "class_length": Shipped({"correct": "match"}),
    "calibrated": Shipped({"correct": "match"}, {"form": "{answer}\n<confidence>1</confidence>"}),
    "shaped_length": Shipped({"correct": "match"}),
    "countdown": Shipped(),
    "ended": Shipped({"of": "match"}),
    "conversation": Shipped({"of": "match", "language": 0.0}),
    "over_budget": Shipped({"of": "match"}),
    "per_step": Shipped({"of": "match"}),
    "overlong": Shipped({"of": "match", "limit": 20_000}),
    "moded": Shipped({"correct": "match"}),
    "format": Shipped(how={"form": "<think>so</think><answer>{answer}</answer>", "about": "form"}),
    "highest": Shipped({"parts": {"rule": "match"}}),
    "all_of": Shipped({"parts": {"rule": "match"}}),
    "gated": Shipped({"reward": "match", "gate": {"short": {"kind": "format", "tags": []}}}),
    "calls": Shipped(
        how={"form": "<call>{answer}</call>", "skip": ["equivalent"]},  # calls are no numbers
        tasks={"kind": "tool_calls", "size": 3},
    ),
    "function": Shipped({"path": "MINE:score"}, {"skip": ["equivalent"]}),
    "levels": Shipped({"correct": "match"}),
    "label": Shipped(how={"form": "<answer>{answer}</answer>", "skip": ["equivalent"]}),  # labels are no numbers
    "match": Shipped(),
    "math_verify": Shipped({}, {"cpu_seconds": 0.5}, "math_verify"),
    # How an answer must be written is the library's decision; its chain_sum does not take a bold one, for example.
    "reasoning_gym": Shipped({}, {"skip": ["equivalent"]}, "reasoning_gym"),
    "regex": Shipped({"pattern": "(?s)^So: .*[0-9a-z].*!$"}, {"form": "So: {answer}!", "about": "form"}),
    "python_tests": Shipped({"limits": QUICK}, programs=()),
    "io_tests": Shipped({"limits": QUICK}, programs=()),
    "counted_work": Shipped(
        {"language": "c", "limits": {**QUICK, "cpu_s": 2.0}},
        programs=("valgrind", "gcc"),
        tasks={"kind": "running_sums", "size": 2, "tests": 2},
    ),
    "sql": Shipped({"limits": QUICK}, programs=()),
    "verilog": Shipped({"limits": QUICK}, programs=("iverilog", "vvp")),
    "process": Shipped({"correct": "match", "steps": "equations", "eta": 0.5, "delta": True}),
    "segments": Shipped({"of": "match", "split": "whole", "right": 1.0, "wrong": 0.0}),
    "choice": Shipped(
        how={"form": r"\boxed{{answer}}", "skip": ["equivalent"]},  # letters are no numbers
        tasks={"kind": "choices", "size": 3, "boxed": True},
    ),
    "proved": Shipped(
        how={"form": r"it is so.</think> <answer> \boxed{{answer}} </answer>", "skip": ["equivalent"]},
        tasks={"kind": "identities", "size": 3},
    ),
    "tool_calls": Shipped(
        how={"form": "<think>so</think>\n<tool_call>\n{answer}\n</tool_call>", "skip": ["equivalent"]},
        tasks={"kind": "tool_requests", "size": 3, "level": 5, "none": 0.0, "right": 1.0},
    ),
    "listed": Shipped(
        how={"form": r"\boxed{{answer}}", "skip": ["equivalent"]}, tasks={"kind": "fractions", "size": 3}
    ),
    "verified_answer": Shipped(
        {"verifier": "listed"},
        {"form": r"\boxed{{answer}}", "skip": ["equivalent"]},  # equal is what the list has
        tasks={"kind": "fractions", "size": 3},
    ),
    "noisy": Shipped({"of": "match"}),
    "audited": Shipped({"of": "match"}),
    "ensemble": Shipped({"parts": {"rule": "match", "same": "match"}, "standardised": False, "correct_at": 0.5}),
    "raised": Shipped({"of": "match", "by": "phrases"}),
    "shadow": Shipped({"of": "match"}),
    "unreliable": Shipped({"of": "match"}),
    "episodic_memory": Shipped({"of": "match"}),
    "captions": Shipped({"of": "match", "helpful": ["take"]}),
    "signed": Shipped({"of": "match"}),
    "translated": Shipped(
        how={"form": "<think>so</think><translate>{answer}</translate>", "skip": ["equivalent"]},
        library="sacrebleu",
        tasks={"kind": "ciphers", "size": 3},
    ),
    "branch_distance": Shipped(
        how={"skip": ["equivalent"]}, programs=(), tasks={"kind": "guards", "size": 1, "slips": 0.0}
    ),
    # Of a suite without its first letter the other tests may suffice.
    "suite": Shipped(
        how={"skip": ["near_programs"]},
        programs=(),
        tasks={"kind": "suites", "size": 2, "faults": 3, "inputs": 50},
    ),
    "kernel": Shipped(
        {"dialect": "toy", "limits": QUICK}, {}, "", (), {"kind": "kernels", "size": 2, "level": 2, "seed": 3}
    ),
    # The answer of a repair is a line, and a completion is a patch.
    "patch_similarity": Shipped(
        {"execution": True}, {"skip": ["gold"]}, "cydifflib", (), {"kind": "repairs", "size": 2, "level": 2}
    ),
    "refactored": Shipped({"execution": True}, {}, "tree_sitter", (), {"kind": "refactorings", "size": 2}),
    "next_action": Shipped(how={"skip": ["equivalent"]}, tasks={"kind": "recorded_shopping", "size": 3, "right": 1.0}),
    # Another task's order may be right by chance.
    "reranked": Shipped(
        how={"form": "<think>so</think><answer>{answer}</answer>", "skip": ["equivalent", "near_miss", "constant"]},
        tasks={"kind": "passages", "size": 3, "noise": 0.0},
    ),
    "sum": Shipped({"parts": {"right": "match", "short": {"kind": "format", "tags": []}}, "weights": {"short": 0.1}}),
}
"""By kind; a new member needs an entry here or in `NOT`."""
NOT = {
    "derivation": "checks a derivation without a reference answer; its own tests hold what is refused",
    "same_words": "keeps words in any form and order, of which many are right; its own tests hold what is refused",
    "uses": "reads programs for names, right or not; its own tests hold what is refused",
    "wins": "compares completions by a model; it has no correct answers",
    "chains": "scores what a plan gives, of which many are right; its own tests hold what must not be rewarded",
    "rated_together": "prompts a model, or rates by another reward, which is audited by itself",
    "program_form": "rates the form of a program, right or not; its own tests hold what is rated low",
    "ranked": "ranks rollouts among one another; no answer is correct by it",
    "solution_set": "compares a list with all solutions, not one answer; its own tests hold what is refused",
    "text_similarity": "rewards partly, by characters or words; its own tests hold what has nothing",
    "increments": "adds what a model likes; the reward that decides what is correct is audited by itself",
    "rubric": "rewards words or what a judge accepts, in any order; its own tests hold what must not be rewarded",
    "constraints": "gives wrong answers a share too, by sigmoid; its own tests hold what must not be rewarded",
    "prover_steps": "adds the values of a model; its reward of success is audited by itself",
    "duels": "compares two completions by a model; it has no correct answers",
    "right_verdict": "one of two letters is right, so guessing is rewarded; its own tests hold what must not be",
    "written_sum": "rewards a size; no answer is correct by it",
    "fields": "compares labels of a record, of which the text is free; its own tests hold what must not be rewarded",
    "preference_model": "compares two completions by a model; it has no correct answers",
    "personal_model": "scores by a model, for a user; it has no correct answers",
    "referenced_model": "scores by a model beside a reference; it has no correct answers",
    "critiqued": "scores by a model, after a critique; it has no correct answers",
    "reward_model": "scores by a model; it has no correct answers",
    "heads": "scores by a model; it has no correct answers",
    "wanted_words": "counts words in lists that have no one answer; its own tests hold what is rated low",
    "directional": "weighs the ratings of another reward, which is audited by itself",
    "robust": "scores by a model; it has no correct answers",
    "judge": "prompts a model",
    "steered": "weighs other rewards, which are audited by themselves",
    "picture": "scores pictures, of which many are right; its own tests hold what is rated low",
    "by_rules": "rewards what no rule forbids, or prompts a model; its own tests hold what is refused",
    "json_score": "prompts a model",
    "principle_logit": "scores by a model; it has no correct answers",
    "principled_model": "scores by a model; it has no correct answers",
    "listwise": "prompts a model",
    "ranked_scores": "rewards partly, by pairs in order; its own tests hold what must not be rewarded",
    "comet": "scores by a model in a folder; it has no correct answers",
    "semantic": "rewards likeness in part; its own tests hold what each cheat has, with and without its rules",
    "word_overlap": "rewards words in common; its own tests hold what must not be rewarded",
    "list_metric": "compares rollouts of several documents; its own tests hold ties and what states no score",
    "strict_best": "one of several orders is right, so guessing is rewarded; its own tests hold what must not be",
    "teaching": "needs a student for the probability of the solution; its own tests hold the cheats",
    "likelihood": "needs a model for the log-probability of the completion",
    "reference_probability": "needs a model for the probability of the reference answer",
    "planted": "rewards how early a trace is complete; its tasks have no answers",
    "rating": "reads the rating of a recorded completion, not its text",
    "episode": "sums the rewards that an environment gave for turns, not texts",
    "verdict": "returns the verdict of an environment",
    "search_answer": "scores words in common with the answer; its own tests hold what must not be rewarded",
    "token_recall": "recall is stuffed by design, as its docstring states; its own tests hold the other measures",
    "tool_use": "scores words in common with the answer; its own tests hold what must not be rewarded",
    "route": "accepts any route that passes its checks; its own tests hold what must not be rewarded",
    "mood": "reads the mood that an environment keeps, not texts",
    "by_role": "scores rollouts of several roles; its parts are audited by themselves",
    "verification": "scores verdicts about another role's results",
    "repetition": "subtracts for format; no answer is correct by it",
    "equations": "scores a step, whatever the answer; its own tests hold that a trivial step scores high",
    "phrases": "rewards a list of phrases as much as a thought, which its own tests hold; no answer is correct by it",
    "boxes": "rewards partly, by overlap; its own tests hold what must not be rewarded",
    "openai_grader": "compares as its JSON states, with whatever the user writes there",
    "one_answer": "takes whole numbers only; its own tests hold what must not be rewarded",
    "knights": "accepts the solution in any wording; its own tests hold what must not be rewarded",
    "in_region": "accepts any point of a region; its own tests hold what must not be rewarded",
}


@pytest.mark.parametrize("kind", [kind for kind in Reward.kinds() if kind not in NOT])
@pytest.mark.slow
def test_what_ships_passes(kind: str, tmp_path: Path) -> None:
    assert kind in SHIPPED, f"reward '{kind}' is new: say in {__file__} how it is audited, or in NOT why it cannot be"
    case = SHIPPED[kind]
    if case.library and importlib.util.find_spec(case.library) is None:
        pytest.skip(f"needs {case.library}")
    if case.programs is not None:
        tier_for(*case.programs)
    (tmp_path / "mine.py").write_text(GRADER)
    settings = json.loads(json.dumps(case.settings).replace("MINE", str(tmp_path / "mine.py")))
    reward = TypeAdapter(Reward).validate_python({"kind": kind, **settings})
    report = audit(reward, sample_tasks(kind, case.tasks), Settings(**case.how))
    assert report.clean, "\n".join(map(str, report.findings[:20]))


def audited(tmp_path: Path, source: str, **how: Any) -> Report:
    """The report on a function."""
    (tmp_path / "mine.py").write_text(source)
    reward = TypeAdapter(Reward).validate_python({"kind": "function", "path": f"{tmp_path}/mine.py:score"})
    only = how.pop("only")
    skip = [kind for kind in kinds() if kind not in only]
    return audit(reward, TASKS, Settings(**{"cpu_seconds": 0.5, "skip": skip, **how}))


@pytest.mark.parametrize(
    ("body", "fault", "kind"),
    [
        ("answer in completion", "false positive", "all_answers"),
        ("len(completion.strip()) > 0", "false positive", "openers"),
        ("completion.strip() == answer or completion == ''", "false positive", "empty"),
        ("completion.strip() == answer or completion.startswith('What')", "false positive", "echo"),
        ("completion.strip() == answer or '<answer></answer>' in completion", "false positive", "format_only"),
        ("completion.strip() == answer or 'full marks' in completion", "false positive", "judge_directed"),
        ("completion.strip().startswith(answer)", "false positive", "near_miss"),
        ("int(completion) == int(answer) if completion.isdigit() else 0", "false positive", "lookalike"),
        ("completion == '<answer>' + answer + '</answer>'", "false negative", "gold"),
        ("completion.strip() == answer", "false negative", "equivalent"),
        ("float(completion)", "error", "openers"),
        ("completion.strip() == answer or len(completion) > 10**5", "false positive", "huge"),
        ("completion.strip() == answer or '9^{9' in completion", "false positive", "hanging"),
    ],
)
def test_faults_are_found(tmp_path: Path, body: str, fault: str, kind: str) -> None:
    report = audited(tmp_path, f"def score(completion, answer):\n    return {body}\n", only=[kind])
    assert {(finding.fault, finding.kind) for finding in report.findings} == {(fault, kind)}
    assert all(finding.explanation or finding.fault == "false negative" or finding.value for finding in report.findings)


@pytest.mark.slow
def test_tests_that_a_constant_passes_are_found() -> None:
    """The reward is correct, and its only test is weak."""
    tier_for()
    reward = TypeAdapter(Reward).validate_python({"kind": "python_tests", "limits": QUICK})
    program = "def even(n):\n    return n % 2 == 0\n"
    weak = Task(key="weak", prompt="Write even.", answer=program, fields={"tests": ["assert even(4)"]})
    skip = [kind for kind in kinds() if kind not in ("gold", "hostile_programs")]
    found = audit(reward, [weak], Settings(skip=skip)).findings
    assert {finding.fault for finding in found} == {"false positive"}
    assert "gives true" in {finding.probe for finding in found}


@pytest.mark.slow
def test_a_bench_that_half_of_the_rows_pass_is_found() -> None:
    tier_for("iverilog", "vvp")
    reward = TypeAdapter(Reward).validate_python({"kind": "verilog", "needed": 0.2, "limits": QUICK})
    skip = [kind for kind in kinds() if kind != "near_programs"]
    found = audit(reward, sample_tasks("verilog"), Settings(skip=skip)).findings
    assert found and {finding.fault for finding in found} == {"false positive"}


@pytest.mark.parametrize(
    ("wrapped", "language"),
    [
        ({"kind": "sum", "parts": {"tests": "python_tests", "form": "format"}}, "python"),
        ({"kind": "sum", "parts": {"form": "format", "rows": "sql"}}, "sql"),
        (
            {"kind": "sum", "parts": {"form": "format", "rows": "sql", "tests": "python_tests"}, "correct": "tests"},
            "python",
        ),
        ({"kind": "sum", "parts": {"answer": "match", "form": "format"}}, ""),
        ({"kind": "calibrated", "correct": "sql"}, "sql"),
        ({"kind": "brevity", "correct": "python_tests"}, "python"),
        ({"kind": "by_role", "parts": {"verifier": "sql", "policy": "python_tests"}}, "python"),
        ({"kind": "by_role", "parts": {"verifier": "sql"}}, ""),
    ],
)
def test_a_reward_made_of_others_runs_what_they_run(wrapped: dict[str, Any], language: str) -> None:
    assert TypeAdapter(Reward).validate_python(wrapped).runs == language


def test_probes_are_for_answers_or_for_programs() -> None:
    """Rewards for programs are distinguished by the language that they run."""
    assert "near_miss" in kinds_for("") and "near_miss" not in kinds_for("python")
    assert "hostile_programs" in kinds_for("sql") and "hostile_programs" not in kinds_for("")
    running = {kind for kind, case in SHIPPED.items() if case.programs is not None}
    tests = {"python_tests", "io_tests", "counted_work", "suite", "kernel"}
    inputs = {"branch_distance"}  # its completions are what a program is run on
    assert running == tests | inputs | {"sql", "verilog", "patch_similarity", "refactored"}
    for kind in running:
        runs = TypeAdapter(Reward).validate_python({"kind": kind, **SHIPPED[kind].settings}).runs
        assert bool(runs) == (kind not in inputs), kind
    for language in ("python", "c", "sql", "verilog"):
        task = Task(key="t", prompt="?", demonstrations=("SELECT 1 + 2",), fields={"tests": ["assert f(1) == 2"]})
        subject = Subject(task=task, language=language, others=["SELECT 4"])
        for kind in ("near_programs", "hostile_programs"):
            names = [probe.name for probe in probes_of(kind, subject)]
            assert len(names) == len(set(names)) > 2, (language, kind)


@pytest.mark.slow
def test_a_grader_that_evaluates_is_found(tmp_path: Path) -> None:
    source = """
def score(completion, answer):
    try:
        return eval(completion) == int(answer)
    except Exception:
        return 0.0
"""
    found = audited(tmp_path, source, only=["hostile_code"]).findings
    assert {finding.probe for finding in found if finding.fault == "code was run"} >= {"call", "import", "lambda"}


@pytest.mark.slow
def test_a_grader_that_hangs_ends(tmp_path: Path) -> None:
    source = """
def score(completion, answer):
    while "{3000" in completion or completion.startswith("9^{9"):
        pass
    return completion.strip() == answer
"""
    report = audited(tmp_path, source, only=["hanging", "gold"])
    assert report.clean and report.kinds["hanging"]["errors"] == 1
    assert report.kinds["hanging"]["slowest"] == 0.5


@pytest.mark.parametrize(("may_fail", "faults"), [(True, 0), (False, 1)])
def test_what_may_fail_at_its_deadline_may_do_so_the_second_time(
    may_fail: bool, faults: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    probe = Probe(name="signs", text="-" * 99, expected="unrewarded", may_fail=may_fail)
    first, second = (
        auditing.Scored(kind="hanging", probe=probe, task=Task(key="t", prompt="?"), score=score, outcome=None)  # type: ignore[arg-type]
        for score in (
            Score(value=0.0, status="wrong"),
            Score(value=float("nan"), status="error", explanation="out of time"),
        )
    )

    async def score(*_: object) -> list[auditing.Scored]:
        return [second]

    monkeypatch.setattr(auditing, "_score", score)
    assert len(asyncio.run(auditing._nondeterministic(None, [first]))) == faults  # type: ignore[arg-type]


def test_a_grader_that_is_not_deterministic_is_found(tmp_path: Path) -> None:
    source = """
import itertools
calls = itertools.count()
def score(completion, answer):
    return -next(calls)
"""
    report = audited(tmp_path, source, only=["openers"])
    assert {finding.fault for finding in report.findings} == {"not deterministic"}


def test_probes_differ_and_none_is_the_answer() -> None:
    subject = Subject(task=TASKS[0], others=["7"])
    for kind in kinds_for(""):
        probes: list[Probe] = list(probes_of(kind, subject))
        assert probes, kind
        assert len({probe.name for probe in probes}) == len(probes), kind
        assert not [p for p in probes if p.expected == "unrewarded" and p.text.strip() == "42"], kind


def test_probes_of_fields_are_for_tasks_that_have_them() -> None:
    """Which are incorrect by construction, and differ from one another and from the reference."""
    fixed, function = {"a.py": "def f(x):\n    return x + 1\n"}, "def f(x):\n    y = x + 1\n    return y\n"
    assert not [kind for kind in kinds_for("") if kind.startswith("of_")]
    for kind, fields, answer, form in (
        ("of_calls", {"tools": []}, '{"name": "f", "parameters": {"a": 1}}', "<tool_call>\n{answer}\n</tool_call>"),
        ("of_options", {"options": ["4", "5", "6"]}, "B", r"\boxed{{answer}}"),
        ("of_orders", {"order": [3, 1, 2]}, "3 > 1 > 2", "<answer>{answer}</answer>"),
        ("of_verdicts", {"truth": False}, "disproved", r"\boxed{{answer}}"),
        ("of_patches", {"files": {"a.py": fixed["a.py"].replace("+", "-")}, "oracle": fixed}, "?", "{answer}"),
        ("of_functions", {"source": function, "function": "f"}, "?", "{answer}"),
    ):
        assert kind in kinds_for("", fields)
        subject = Subject(task=Task(key="t", prompt="?", answer=answer, fields=fields), form=form)
        texts = [probe.text for probe in probes_of(kind, subject)]
        assert len(set(texts)) == len(texts) >= 5 and subject.written(answer) not in texts


def test_constants_and_numbers_of_the_prompt() -> None:
    task = Task(key="t", prompt="A box has 3 rows of 14 pens, and 42.0 more.", answer="42")
    subject = Subject(task=task, frequent="7")
    found = {kind: [probe.text for probe in probes_of(kind, subject)] for kind in ("constant", "prompt_numbers")}
    assert found["constant"][:2] == ["0", "1"] and found["constant"][-1] == "7"
    assert found["prompt_numbers"] == ["3", "14", "3 14 42.0 3"]
    word = Subject(task=Task(key="t", prompt="3 rows?", answer="Yes"), frequent="yes")
    assert [probe.text for probe in probes_of("constant", word)] == ["no", "true", "false", "none", "unknown"]
    assert not list(probes_of("prompt_numbers", word))


def test_a_reward_that_reads_the_last_number_or_counts_a_constant_is_found(tmp_path: Path) -> None:
    source = "def score(completion, answer):\n    return completion.strip() in (answer, '0')\n"
    report = audited(tmp_path, source, only=["constant", "gold"])
    assert {finding.probe for finding in report.findings} == {"always 0"}


def test_what_cannot_be_audited_is_refused(tmp_path: Path) -> None:
    match = TypeAdapter(Reward).validate_python("match")
    with pytest.raises(UserError, match="tasks with answers"):
        audit(match, [Task(key="bare", prompt="?")])
    with pytest.raises(UserError, match="no kind of probe 'echos'"):
        audit(match, TASKS, Settings(skip=["echos"]))
    with pytest.raises(UserError, match="scores with models"):
        audit(TypeAdapter(Reward).validate_python("reward_model"), TASKS)


@pytest.mark.slow
def test_the_verb(tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text("def score(completion, answer):\n    return answer in completion\n")
    Path("mine.jsonl").write_text('{"prompt": "What is six times seven?", "answer": "42"}\n')
    skip = ",".join(kind for kind in kinds() if kind not in ("gold", "all_answers"))
    verb = ["audit", "./mine.py:score", "tasks=mine.jsonl", "--skip", skip]
    assert main(verb) == 1
    printed = capfd.readouterr().out
    assert "false positive: all_answers, commas, task" in printed and "findings" in printed
    assert re.search(r"^probes +tried +rewarded +errors +slowest", printed, re.MULTILINE)
    assert main([*verb, "--json"]) == 1
    answer = json.loads(capfd.readouterr().out)
    assert answer["clean"] is False and answer["findings"][0]["fault"] == "false positive"
    assert answer["kinds"]["gold"]["rewarded"] == answer["kinds"]["gold"]["probes"]
    assert main(["audit", "match", "tasks=mine.jsonl", "--skip", skip]) == 0
    assert "no findings" in capfd.readouterr().out
    assert main(["audit", "match", "numeric=perhaps"]) == 2
    assert main(["audit", "no_such_reward"]) == 2
