"""How many verifications a second the runner does, with and without answers that hang, and what hostile answers cost.

    python docs/experiments/verifier_runner.py     writes docs/measured/trust/verifier_runner.json, hostile_answers.json

In-process calls and the runner take turns, answer by answer in one run, so that a busy machine slows both; the ratio is
what to inspect. In process means without any limit, which nobody should train with.
"""

import asyncio
import json
import time
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from pathlib import Path

from posttrain.audit import Probe
from posttrain.audit.auditing import rollout_of
from posttrain.audit.probes import hanging
from posttrain.audit.samples import sample_tasks
from posttrain.components.rewards import Reward, RewardContext
from posttrain.components.rewards.countdown import Countdown
from posttrain.components.rewards.match import Match
from posttrain.components.rewards.math_verify import MathVerify
from posttrain.components.rewards.reasoning_gym import ReasoningGym
from posttrain.grading.math_comparison import compare
from posttrain.grading.math_warm import warm
from posttrain.grading.workers import Limits, Outcome, Runner
from posttrain.types import Group

OUT = Path(__file__).parents[1] / "measured" / "trust"
GRADER = "posttrain.grading.math_worker:open_comparison"
PRELOAD = ("posttrain.grading.math_warm",)
TYPICAL = [
    {"gold": rf"\frac{{{n}}}{{7}}x + \sqrt{{{n + 2}}}", "answer": rf"\sqrt{{{n + 2}}} + {n}x/7", "tolerance": "0"}
    for n in range(1, 101)
]
HANGING = {"gold": "2", "answer": "9^{9^{9^{9}}}", "tolerance": "0"}


COMMAND = "python docs/experiments/verifier_runner.py"


def main() -> None:
    """Measure and write."""
    OUT.mkdir(parents=True, exist_ok=True)
    write("verifier_runner", "Graders, limited", ["way", "answers that hang", "verifications/s", "time-outs"], speed())
    rewards: dict[str, Reward] = {
        "math_verify": MathVerify(time_limit=1.0),
        "match": Match(),
        "countdown": Countdown(),
        "reasoning_gym": ReasoningGym(time_limit=1.0),
    }
    columns = ["answer", "compared", "in a box", "called equal", "CPU s", *rewards]
    write("hostile_answers", "Hostile mathematics", columns, hostile(rewards))


def write(name: str, title: str, columns: list[str], rows: list[list[object]]) -> None:
    """One part of docs/trust.md."""
    part = {"title": title, "command": COMMAND, "tables": [{"columns": columns, "rows": rows}]}
    (OUT / f"{name}.json").write_text(json.dumps(part, indent=1) + "\n")


def speed() -> list[list[object]]:
    """Verifications a second."""
    warm()
    ways: dict[str, Callable[[Sequence[Mapping[str, str]]], Sequence[Outcome]]] = {"in process, no limit": in_process}
    for workers in (1, 2):
        runner = Runner(GRADER, limits=Limits(cpu_seconds=1.0), preload=PRELOAD, workers=workers)
        runner.run_now(*TYPICAL[:4])
        ways[f"runner, {workers} worker{'s' * (workers > 1)}"] = lambda calls, runner=runner: runner.run_now(*calls)
    seconds = dict.fromkeys(ways, 0.0)
    for turn, start in enumerate(range(0, len(TYPICAL), 20)):
        names = list(ways)
        for name in names[turn % 3 :] + names[: turn % 3]:
            began = time.perf_counter()
            ways[name](TYPICAL[start : start + 20])
            seconds[name] += time.perf_counter() - began
    rows: list[list[object]] = [[name, "none", round(len(TYPICAL) / total, 1), 0] for name, total in seconds.items()]
    calls = [HANGING if n % 20 == 10 else call for n, call in enumerate(TYPICAL)]
    alone = [outcome.value for outcome in runner.run_now(*TYPICAL)]
    began = time.perf_counter()
    outcomes = runner.run_now(*calls)
    total = time.perf_counter() - began
    for call, outcome, value in zip(calls, outcomes, alone, strict=True):
        assert call is HANGING or outcome.value == value, "the others are as they are without the hanging ones"
    late = sum(outcome.how == "timeout_cpu" for outcome in outcomes)
    rows.append(["runner, 2 workers, 1 s of processor time", "5 %", round(len(calls) / total, 1), late])
    return rows


def in_process(calls: Sequence[Mapping[str, str]]) -> Sequence[Outcome]:
    """The usual way: nothing stops an answer that takes for ever."""
    for call in calls:
        compare(call["gold"], call["answer"], Fraction(0))
    return []


def hostile(rewards: Mapping[str, Reward]) -> list[list[object]]:
    """What became of each hostile answer: compared past the checks that a reward makes first, and by each reward."""
    runner = Runner(GRADER, limits=Limits(cpu_seconds=1.0), preload=PRELOAD)
    names, answers = list(hanging.ANSWERS), list(hanging.ANSWERS.values())
    texts = [*answers, *(rf"\boxed{{{answer}}}" for answer in answers)]
    outcomes = runner.run_now(*({"gold": "2", "answer": text, "tolerance": "0"} for text in texts))
    scored = {kind: statuses(kind, reward, answers) for kind, reward in rewards.items()}
    rows: list[list[object]] = []
    for index, name in enumerate(names):
        both = (outcomes[index], outcomes[len(names) + index])
        equal = any(outcome.value and outcome.value["equal"] for outcome in both)
        slowest = round(max(outcome.cpu_seconds for outcome in both), 2)
        scores = (scored[kind][index] for kind in rewards)
        rows.append([name, *(outcome.how for outcome in both), "yes" if equal else "no", slowest, *scores])
    return rows


def statuses(kind: str, reward: Reward, answers: Sequence[str]) -> list[str]:
    """The score of each answer to a task of its own."""
    task = sample_tasks(kind)[0]
    probes = [Probe(name="", text=answer, expected="unrewarded") for answer in answers]
    group = Group(trajectories=tuple(rollout_of(probe, task) for probe in probes), key="hostile")
    return [score.status for score in asyncio.run(reward.score(group, RewardContext()))]


if __name__ == "__main__":
    main()
