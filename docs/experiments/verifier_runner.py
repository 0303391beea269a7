"""How many verifications a second the runner does, with and without answers that hang, and what hostile answers cost.

    python docs/experiments/verifier_runner.py     writes docs/measured/trust/verifier_runner.json, hostile_answers.json

In-process calls and the runner take turns, answer by answer in one run, so that a busy machine slows both; the ratio is
what to look at. In process means without any limit, which nobody should train with.
"""

import json
import time
from fractions import Fraction
from pathlib import Path

from posttrain.audit import Subject
from posttrain.audit.probes import hanging
from posttrain.rewards._math_comparison import compare
from posttrain.rewards._math_warm import warm
from posttrain.types import Task
from posttrain.verifying import Limits, Runner

OUT = Path(__file__).parents[1] / "measured" / "trust"
GRADER = "posttrain.rewards._math_comparison:open_comparison"
PRELOAD = ("posttrain.rewards._math_warm",)
TYPICAL = [
    {"gold": rf"\frac{{{n}}}{{7}}x + \sqrt{{{n + 2}}}", "answer": rf"\sqrt{{{n + 2}}} + {n}x/7", "tolerance": "0"}
    for n in range(1, 101)
]
HANGING = {"gold": "2", "answer": "9^{9^{9^{9}}}", "tolerance": "0"}


def main() -> None:
    """Measure and write."""
    OUT.mkdir(parents=True, exist_ok=True)
    rows = speed()
    (OUT / "verifier_runner.json").write_text(json.dumps(rows, indent=2) + "\n")
    (OUT / "hostile_answers.json").write_text(json.dumps(hostile(), indent=2) + "\n")


def speed() -> list[dict[str, object]]:
    """Verifications a second."""
    warm()
    rows: list[dict[str, object]] = []
    runners = {
        workers: Runner(GRADER, limits=Limits(cpu_seconds=1.0), preload=PRELOAD, workers=workers) for workers in (1, 2)
    }
    for runner in runners.values():
        runner.run_now(*TYPICAL[:4])
    seconds = {"in process, no limit": 0.0, "runner, 1 worker": 0.0, "runner, 2 workers": 0.0}
    for start in range(0, len(TYPICAL), 20):
        calls = TYPICAL[start : start + 20]
        began = time.perf_counter()
        for call in calls:
            compare(call["gold"], call["answer"], Fraction(0))
        seconds["in process, no limit"] += time.perf_counter() - began
        for workers, runner in runners.items():
            began = time.perf_counter()
            assert all(outcome.how == "ok" for outcome in runner.run_now(*calls))
            seconds[f"runner, {workers} worker{'s' * (workers > 1)}"] += time.perf_counter() - began
    for way, total in seconds.items():
        rows.append({"way": way, "hanging": "none", "verifications/s": round(len(TYPICAL) / total, 1)})
    calls = [HANGING if n % 20 == 10 else call for n, call in enumerate(TYPICAL)]
    began = time.perf_counter()
    outcomes = runners[2].run_now(*calls)
    total = time.perf_counter() - began
    rows.append(
        {
            "way": "runner, 2 workers, 1 s of processor time",
            "hanging": "5 %",
            "verifications/s": round(len(calls) / total, 1),
            "timeouts": sum(outcome.how == "timeout_cpu" for outcome in outcomes),
            "others unchanged": sum(outcome.how == "ok" for outcome in outcomes),
        }
    )
    rows.append({"way": "in process, no limit", "hanging": "5 %", "verifications/s": 0, "note": "never ends"})
    return rows


def hostile() -> list[dict[str, object]]:
    """What became of each hostile answer, past the checks of length and depth that the reward makes first."""
    runner = Runner(GRADER, limits=Limits(cpu_seconds=1.0), preload=PRELOAD)
    answers = {probe.name: probe.text for probe in hanging.probes(Subject(task=Task(key="t", prompt="?", answer="2")))}
    outcomes = runner.run_now(*({"gold": "2", "answer": text, "tolerance": "0"} for text in answers.values()))
    return [
        {
            "answer": name,
            "outcome": o.how,
            "equal": bool(o.value and o.value["equal"]),
            "cpu, s": round(o.cpu_seconds, 3),
        }
        for name, o in zip(answers, outcomes, strict=True)
    ]


if __name__ == "__main__":
    main()
