"""Write docs/real-model.md from runs of `word_problems` that were recorded in docs/measured/real_model/*.json.

Runs of other names are short trials of the same recipe with something changed: docs/measured/real_model/trials/*.json.

.venv/bin/python docs/real_model.py record RUN...   keep what the page shows of runs, then write it
.venv/bin/python docs/real_model.py first           measure the first answers of models/smollm2, then write the page
.venv/bin/python docs/real_model.py                 write the page and its pictures, if they are out of date
.venv/bin/python docs/real_model.py --check         say whether they are out of date, and exit with 1 if they are
"""

import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from figures import BOTTOM, LEFT, TOP, Axis, colour_of, drawn, svg
from pages import table, write_or_check

from posttrain.runs.store import RunStore

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
PARTS, PICTURES, PAGE = DOCS / "measured" / "real_model", DOCS / "pictures", DOCS / "real-model.md"
TRIALS = PARTS / "trials"
WHOLE = ("word_problems", "word_problems_lora")
"""Recipes whose runs are shown whole."""
FIRST = PARTS / "first" / "answers.json"
"""What the model writes before it is trained."""
INSTRUCTIONS = (
    ("Answer with one number.", 1),
    ("", 1),
    ("Work it out step by step.", 1),
    ("Work it out step by step.", 2),
)
"""Instructions that were tried, and the calculations of a problem."""
TEMPERATURES = (1.0, 0.6)
TEXT = PARTS / "text.md"
"""What is written by hand: the way there, and what was learned on it."""
COMPARED = 10
"""Held-out answers that are shown before and after: the first ones, not chosen."""
KEPT = ("reward", "entropy", "completion_tokens", "truncated", "zero_variance")
"""Metrics of a step that are kept."""
EVALUATED = ("step", "accuracy", "accuracy_interval", "truncated", "mean_tokens")
SUMMED = ("steps", "sampled_tokens", "tasks_evaluated", "verifier")
"""Entries of an evaluation, and of a summary, that are kept."""
OUTCOME = ("accuracy_before", "accuracy_before_interval", "accuracy_after", "accuracy_after_interval", "gain")


def record(folder: Path) -> dict[str, Any]:
    """What the page shows of a run that has ended."""
    with RunStore.open(folder, reading=True) as store:
        summary, environment, evaluations = store.summary(), store.environment(), store.evaluations()
        recipe, before, after = store.recipe_tree(), evaluations[0], evaluations[-1]
        columns = ("task_key", "prompt", "completion", "reward", "stop_reason")
        rows = [store.evaluation_rows(e["step"], e["name"], columns) for e in (before, after)]
        answers = [{row["task_key"]: row for row in table} for table in rows]
        problems = {task: answers[0][task] for task in list(answers[0])[:COMPARED]}
        steps = [{"step": m["step"], **{name: m[name] for name in KEPT}} for m in store.metrics()]
        seconds = sum(entry.get("seconds_total", 0.0) for entry in store.timing())
        checked = sum(entry.get("seconds_evaluate", 0.0) for entry in store.timing())
    return {
        "recipe": recipe,
        "machine": {name: environment.get(name) for name in ("cpu", "instructions", "cores")},
        **{name: summary[name] for name in (*OUTCOME, *SUMMED, "seconds", "peak_memory_bytes")},
        "seconds_of_steps": seconds,
        "seconds_of_evaluations": checked,
        "metrics": steps,
        "evaluations": [{name: e[name] for name in EVALUATED} for e in evaluations],
        "answers": [
            {
                "prompt": row["prompt"],
                "before": {name: row[name] for name in ("completion", "reward", "stop_reason")},
                "after": {name: answers[1][task][name] for name in ("completion", "reward", "stop_reason")},
            }
            for task, row in problems.items()
        ],
    }


def trial(folder: Path) -> dict[str, Any]:
    """What the page shows of a trial that has ended; not how long it took, which other work on the machine decides."""
    with RunStore.open(folder, reading=True) as store:
        summary, evaluations, metrics = store.summary(), store.evaluations(), store.metrics()
        recipe, last = store.recipe_tree(), evaluations[-1]
        columns = ("prompt", "completion", "answer", "reward", "stop_reason")
        answers = store.evaluation_rows(last["step"], last["name"], columns)[:COMPARED]
    return {
        "recipe": recipe,
        **{name: summary[name] for name in (*OUTCOME, *SUMMED)},
        "metrics": [{"step": m["step"], **{name: m[name] for name in KEPT}} for m in metrics],
        "evaluations": [{name: e[name] for name in EVALUATED} for e in evaluations],
        "answers": answers,
    }


def first_answers() -> dict[str, Any]:
    """Greedy accuracy by instruction, and a first batch of rollouts by temperature, of the model as it was fetched."""
    rows = []
    for instruction, steps in INSTRUCTIONS:
        problems = {"kind": "word_problems", "size": 400, "steps": [steps, steps], "largest": 50, "distractors": 0}
        tasks = json.dumps({**problems, "as_chat": True, "instruction": instruction})
        more = ("evaluation.holdout=60", "evaluation.verifier={kind: match}", "rollout.sampling.max_tokens=80")
        found = json.loads(posttrain("eval", "models/smollm2", f"tasks={tasks}", *more))
        kept = {name: found[name] for name in ("tasks", "accuracy", "accuracy_interval", "truncated")}
        rows.append({"instruction": instruction, "steps": steps, **kept})
    batches = []
    for temperature in TEMPERATURES:
        asked = f"rl.rollout.sampling.temperature={temperature}"
        report = " ".join(json.loads(posttrain("run", "word_problems", asked, "--dry-run"))["stage rl (rl)"])
        numbers = {name: float(re.search(rf"{name} ([0-9.e-]+)", report)[1]) for name in ("truncated", "solved")}  # type: ignore[index]
        batches.append({"temperature": temperature, **numbers})
    return {"instructions": rows, "temperatures": batches}


def posttrain(*words: str) -> str:
    """What a command prints as JSON."""
    done = subprocess.run(
        [sys.executable, "-m", "posttrain", *words, "--json"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return done.stdout


def page(runs: Mapping[str, Mapping[str, Any]], trials: Mapping[str, Mapping[str, Any]]) -> str:
    """The whole page."""
    parts = TEXT.read_text(encoding="utf-8").split("<!-- measured -->")
    opening, closing, found, between, last = map(str.strip, parts)
    lines = ["<!-- Written by docs/real_model.py. -->", "", opening, ""]
    columns = ("recipe", "before", "after", "gain", "steps", "minutes", "memory", "tokens sampled")
    lines += table(columns, (numbers(name, run) for name, run in runs.items()))
    first = next(iter(runs.values()))
    machine = first["machine"]
    lines += [
        f"Accuracy of greedy answers to {first['tasks_evaluated']} held-out problems with 95 % intervals, scored by "
        f"`{first['verifier']}`, not by the reward. Minutes are those of the whole run with its evaluations, "
        "and upper bounds: those between two steps were counted twice until after this was measured. "
        f"Measured on {machine['cores']} cores ({machine['cpu']}; {machine['instructions']}).",
        "",
        "![Held-out accuracy and reward by step](pictures/real-model.svg)",
        "",
        closing,
        "",
    ]
    untrained = json.loads(FIRST.read_text(encoding="utf-8"))
    columns = ("instruction", "calculations", "right", "cut at 80 tokens")
    lines += table(columns, (instructed(row) for row in untrained["instructions"]))
    columns = ("temperature", "right of a first batch of 128 rollouts", "cut at 32 tokens")
    lines += table(columns, (sampled(row) for row in untrained["temperatures"]))
    lines += [found, ""]
    plain = runs["word_problems"]
    changed = [one for one in trials.values() if one["recipe"]["tasks"]["kind"] == "word_problems"]
    lines += table(("recipe", "held out after 10 steps", "cut at the limit"), variants(plain, changed))
    lines += [between, ""]
    measured = ("before", "after", "gain", "steps", "groups learned from", "an answer at the end")
    columns = ("tasks", "instruction", *measured)
    lines += table(columns, (tried(one) for one in trials.values() if one not in changed))
    lines += [last, ""]
    for name, run in runs.items():
        lines += [f"## The first {COMPARED} held-out answers of `{name}`", ""]
        lines += table(("problem", "before", "after"), (compared(answer) for answer in run["answers"]))
    return "\n".join(lines).rstrip() + "\n"


def instructed(row: Mapping[str, Any]) -> list[str]:
    """The row of an instruction."""
    said = code(row["instruction"]) if row["instruction"] else "none"
    right = accuracy(row["accuracy"], row["accuracy_interval"])
    return [said, str(row["steps"]), right, f"{100 * row['truncated']:.0f} %"]


def sampled(row: Mapping[str, Any]) -> list[str]:
    """The row of a temperature."""
    return [f"{row['temperature']:g}", f"{100 * row['solved']:.1f} %", f"{100 * row['truncated']:.0f} %"]


def variants(plain: Mapping[str, Any], changed: Sequence[Mapping[str, Any]]) -> Iterator[list[str]]:
    """A row for the recipe as it is after ten steps, and one for each trial of it."""
    for run in (plain, *changed):
        rl = run["recipe"]["stages"]["rl"]
        parts = [f"a penalty `{name}` of weight {p['coefficient']:g}" for name, p in rl["penalties"].items()]
        if rl["reward"]["kind"] == "sum":
            weights = rl["reward"]["weights"]
            parts += [
                f"a reward `{name}` of weight {weights[name]:g}" for name in rl["reward"]["parts"] if name in weights
            ]
        tenth = next(e for e in run["evaluations"] if e["step"] == 10)
        said = "`word_problems`" + (f" with {' and '.join(parts)}" if parts else "")
        yield [said, accuracy(tenth["accuracy"], tenth["accuracy_interval"]), f"{100 * tenth['truncated']:.1f} %"]


def tried(run: Mapping[str, Any]) -> list[str]:
    """The row of a trial on other tasks."""
    tasks, answer = run["recipe"]["tasks"], run["answers"][0]
    low, high = run["gain"]["interval"]
    learned = 1 - sum(m["zero_variance"] for m in run["metrics"]) / len(run["metrics"])
    return [
        f"`{tasks['name']}`",
        code(tasks["system"]) if tasks["system"] else "",
        accuracy(run["accuracy_before"], run["accuracy_before_interval"]),
        accuracy(run["accuracy_after"], run["accuracy_after_interval"]),
        f"{100 * run['gain']['value']:+.1f} points [{100 * low:+.1f}, {100 * high:+.1f}]",
        str(run["steps"]),
        f"{100 * learned:.0f} %",
        f"{code(answer['completion'])}, expected {code(answer['answer'])}",
    ]


def numbers(name: str, run: Mapping[str, Any]) -> list[str]:
    """The row of a run."""
    gain = run["gain"]
    low, high = gain["interval"]
    return [
        f"`{name}`",
        accuracy(run["accuracy_before"], run["accuracy_before_interval"]),
        accuracy(run["accuracy_after"], run["accuracy_after_interval"]),
        f"{100 * gain['value']:+.1f} points [{100 * low:+.1f}, {100 * high:+.1f}]",
        str(run["steps"]),
        f"{run['seconds'] / 60:.1f}",
        f"{run['peak_memory_bytes'] / 2**30:.2f} GiB",
        f"{run['sampled_tokens']:,}",
    ]


def accuracy(value: float, interval: Sequence[float]) -> str:
    """A share with its interval."""
    return f"{100 * value:.1f} % [{100 * interval[0]:.1f}, {100 * interval[1]:.1f}]"


def compared(answer: Mapping[str, Any]) -> list[str]:
    """The row of a problem."""
    question = answer["prompt"].rpartition("user\n")[2].partition("\nassistant")[0]
    return [
        code(question),
        *(f"{mark(answer[when])} {code(answer[when]['completion'])}" for when in ("before", "after")),
    ]


def mark(answer: Mapping[str, Any]) -> str:
    """Whether an answer is right."""
    return "right:" if answer["reward"] else "cut off:" if answer["stop_reason"] == "length" else "wrong:"


def code(text: str) -> str:
    """A text of a model, shown as it is."""
    plain = " ".join(text.split()).replace("`", "'")
    return f"`{plain}`" if plain else "(empty)"


def picture(runs: Mapping[str, Mapping[str, Any]]) -> str:
    """The curves of all runs: held-out accuracy as line and band, the reward of each step thin beside it."""
    steps = [metric["step"] for run in runs.values() for metric in run["metrics"]]
    bottom = TOP + 260
    x_axis, y_axis = Axis([0, *steps]), Axis([0.0, 1.0], bottom, TOP)
    parts = [
        f'<text class="name" x="{LEFT}" y="18">held-out accuracy with 95 % interval, and reward (thin), by step</text>'
    ]
    parts += [*x_axis.grid(bottom), *y_axis.levels()]
    for number, (name, run) in enumerate(runs.items()):
        found = run["evaluations"]
        line = {
            "steps": [e["step"] for e in found],
            "mean": [e["accuracy"] for e in found],
            "interval": [e["accuracy_interval"] for e in found],
        }
        parts += drawn(line, x_axis, y_axis, colour_of(number + 1))
        points = " ".join(f"{x_axis.at(m['step']):.1f},{y_axis.at(m['reward']):.1f}" for m in run["metrics"])
        parts.append(f'<polyline fill="none" stroke-width="1" stroke="{colour_of(number + 1)}" points="{points}"/>')
        y = bottom + BOTTOM + 18 * number + 8
        parts.append(f'<rect x="{LEFT}" y="{y - 9}" width="14" height="10" fill="{colour_of(number + 1)}"/>')
        parts.append(f'<text x="{LEFT + 20}" y="{y}">{escape(name)}</text>')
    return svg(parts, bottom + BOTTOM + 18 * len(runs) + 8, "Held-out accuracy and reward by step")


def recorded(folder: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """The runs that were recorded, by recipe."""
    for path in sorted(folder.glob("*.json"), key=lambda path: (len(path.stem), path.stem)):
        yield path.stem, json.loads(path.read_text(encoding="utf-8"))


def main(arguments: Sequence[str]) -> int:
    """Record runs, or write or check the page."""
    if arguments and arguments[0] == "record":
        TRIALS.mkdir(parents=True, exist_ok=True)
        for folder in map(Path, arguments[1:]):
            with RunStore.open(folder, reading=True) as store:
                name = store.recipe_tree()["name"]
            run = record(folder) if name in WHOLE else trial(folder)
            path = (PARTS if name in WHOLE else TRIALS) / f"{name}.json"
            path.write_text(json.dumps(run, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        arguments = []
    if arguments and arguments[0] == "first":
        FIRST.parent.mkdir(parents=True, exist_ok=True)
        FIRST.write_text(json.dumps(first_answers(), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        arguments = []
    runs, trials = dict(recorded(PARTS)), dict(recorded(TRIALS))
    drawing = PICTURES / "real-model.svg"
    if not arguments:
        drawing.write_text(picture(runs), encoding="utf-8")
    elif not drawing.exists() or drawing.read_text(encoding="utf-8") != picture(runs):
        print("docs/pictures/real-model.svg is out of date", file=sys.stderr)
        return 1
    return write_or_check(arguments, __doc__, PAGE, lambda: page(runs, trials))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
