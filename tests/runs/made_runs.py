"""Trajectories and whole runs that are made up, for tests of what records and shows them."""

import atexit
import math
import random
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from posttrain.runs.store import RunStore
from posttrain.runs.tables import rollout_rows
from posttrain.statistics.intervals import wilson
from posttrain.types import Fact, Score, Segment, Task, Trajectory

RECIPE: dict[str, Any] = {
    "name": "quickstart",
    "models": {"policy": {"source": "pebble", "trained": True}},
    "tasks": {"kind": "arithmetic", "digits": 2},
    "stages": {"sft": {"kind": "sft", "epochs": 1}, "rl": {"kind": "rl", "steps": 24, "prompts": 4}},
    "evaluation": {"holdout": 200, "verifier": None, "correct_at": 1.0},
    "seed": 0,
}
ENVIRONMENT = {"torch_threads": 2, "device": "cpu"}


@dataclass(frozen=True, kw_only=True)
class Note(Fact):
    """A fact of a user's own rollout."""

    entries: Mapping[str, Any]

    def record(self) -> dict[str, Any]:
        return dict(self.entries)


def trajectory(
    prompt: str = "2+3=",
    completion: str = "5",
    *,
    answer: str | None = "5",
    key: str = "task-0",
    sample: int = 0,
    score: Score | None = None,
    stop_reason: Any = "stop",
    **changes: Any,
) -> Trajectory:
    """One rollout whose tokens are the bytes of its texts."""
    asked, written = (
        np.frombuffer(text.encode("utf-8", "replace"), np.uint8).astype(np.int64) for text in (prompt, completion)
    )
    logp = np.linspace(-2.0, -0.1, len(written)).astype(np.float32)
    return Trajectory(
        task=Task(key=key, prompt=prompt, answer=answer, domain="sums"),
        segments=(
            Segment(actor="prompt", token_ids=asked, text=prompt),
            Segment(actor="policy", token_ids=written, logp=logp, trained=True, version=3, text=completion),
        ),
        stop_reason=stop_reason,
        sample=sample,
        score=score,
        **changes,
    )


def right(answer: str) -> Score:
    parts = {"exact": Score(value=1.0, status="ok"), "format": Score(value=1.0, status="ok")}
    return Score(value=1.0, status="ok", answer=answer, explanation=f"{answer} is the reference answer", parts=parts)


def wrong(answer: str, expected: str) -> Score:
    parts = {"exact": Score(value=0.0, status="wrong"), "format": Score(value=1.0, status="ok")}
    return Score(value=0.0, status="wrong", answer=answer, explanation=f"{answer} is not {expected}", parts=parts)


def write_byte_tokenizer(folder: Path) -> None:
    """A tokenizer whose ids are bytes."""
    from tokenizers import Tokenizer, decoders, models

    printable = {*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)}
    spare = iter(range(256))
    symbols = [chr(byte if byte in printable else 256 + next(spare)) for byte in range(256)]
    backend = Tokenizer(models.BPE(vocab={symbol: i for i, symbol in enumerate(symbols)}, merges=[]))
    backend.decoder = decoders.ByteLevel()
    folder.mkdir(parents=True, exist_ok=True)
    backend.save(str(folder / "tokenizer.json"))


def attempt(problem: int, skill: float, draw: random.Random, sample: int = 0) -> Trajectory:
    """A rollout of the sum with this number, correct with a probability."""
    a, b = 17 * problem % 90 + 10, 29 * problem % 90 + 10
    expected = str(a + b)
    good = draw.random() < skill
    got = expected if good else str(a + b + draw.choice([-10, -1, 1, 10]))
    text = (
        f"{a}+{b}: units {a % 10}+{b % 10}={a % 10 + b % 10}, tens {a // 10}+{b // 10}={a // 10 + b // 10}. #### {got}"
    )
    if not good and draw.random() < 0.2:
        text, got = f"<script>alert('{a}')</script> & {a}+{b} = ", ""
    score = right(got) if good else wrong(got, expected)
    return trajectory(
        f"What is {a}+{b}?\n",
        text,
        answer=expected,
        key=f"sum-{problem}",
        sample=sample,
        score=score,
        stop_reason="stop" if got else "length",
    )


def evaluate(store: RunStore, step: int, name: str, skill: float, tasks: int = 200) -> None:
    draw = random.Random(step)
    answers = [attempt(1000 + problem, skill, draw) for problem in range(tasks)]
    correct = sum(t.score is not None and t.score.value >= 1.0 for t in answers)
    summary = {
        "accuracy": correct / tasks,
        "accuracy_interval": list(wilson(correct, tasks)),
        "tasks": tasks,
        "correct": correct,
        "errors": 0,
        "mean_score": correct / tasks,
        "mean_tokens": float(np.mean([t.num_trained for t in answers])),
        "truncated": sum(t.stop_reason == "length" for t in answers) / tasks,
        "pass_at_k": {"1": correct / tasks, "4": min(1.0, correct / tasks * 1.3)},
        "verifier": "numeric",
    }
    store.write_evaluation(step, name, rollout_rows(answers, stage=name), summary)


def step_numbers(stage: str, share: float, draw: random.Random) -> dict[str, float]:
    """Metrics of a step that look like those of a run that learns; `share` is how much of the stage is done."""
    if stage == "sft":
        return {
            "loss": 3.2 * math.exp(-3 * share) + 0.25 + 0.05 * draw.random(),
            "learning_rate": 1e-3 * (1 - share),
            "gradient_norm": 1.0 + draw.random(),
            "trained_tokens": 4096.0,
        }
    reward = 0.4 + 0.5 * share + 0.06 * (draw.random() - 0.5)
    return {
        "reward": reward,
        "reward/exact": reward - 0.05,
        "reward/format": min(1.0, reward + 0.1),
        "completion_tokens": 42 - 8 * share + 2 * draw.random(),
        "truncated": 0.08 * (1 - share),
        "zero_variance": 0.1 + 0.5 * share + 0.1 * draw.random(),
        "grader_errors": 0.0,
        "entropy": (entropy := 0.9 * math.exp(-1.5 * share) + 0.03 * draw.random()),
        "sampled_nll": entropy + 0.02,
        "kl/reference": 0.02 * share + 0.002 * draw.random(),
        "clip_fraction": 0.02,
        "ratio_max": 1.4,
        "gradient_norm": 0.5,
        "learning_rate": 1e-4,
        "sampled_tokens": 2048.0,
        "trained_tokens": 1800.0,
    }


def record_steps(store: RunStore, steps: Sequence[tuple[int, str, int, float]]) -> None:
    """Record steps given as (step, stage, step of the stage, share of the stage that is done)."""
    for step, stage, stage_step, share in steps:
        draw = random.Random(step)
        store.log_metrics(step, stage, stage_step, step_numbers(stage, share, draw))
        timing = {
            "seconds_learn": 0.4,
            "seconds_total": 0.5 if stage == "sft" else 1.5,
            "peak_memory_bytes": 6e8 + step,
        }
        if stage == "rl":
            timing |= {"seconds_sample": 1.0, "seconds_score": 0.05, "tokens_per_second": 2048.0}
            rollouts = [attempt(4 * step + i // 4, 0.5 + 0.4 * share, draw, i % 4) for i in range(16)]
            columns = [
                {
                    "advantage": np.full(t.num_trained, (t.score.value if t.score else 0.0) - 0.7, np.float32),
                    "trained_logp": np.linspace(-3, -0.01, t.num_trained).astype(np.float32),
                    "entropy": np.abs(np.sin(np.arange(t.num_trained))).astype(np.float32),
                }
                for t in rollouts
            ]
            table = rollout_rows(rollouts, stage=stage, groups=[i // 4 for i in range(16)], columns=columns)
            store.write_rollouts(step, table)
        store.log_timing(step, stage, stage_step, timing)


def make_run(root: Path, *, sft: int = 20, rl: int = 24, tasks: int = 200) -> Path:
    """A whole run of two stages in a new folder under `root`; returns the folder. Equal ones are copies of one."""
    made = _made(sft, rl, tasks)
    with RunStore.create(root, "quickstart", RECIPE, ENVIRONMENT) as store:
        folder = store.folder
    shutil.copytree(made, folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns("environment.json", ".lock"))
    return folder


@cache
def _made(sft: int, rl: int, tasks: int) -> Path:
    """A run that is kept until the process ends."""
    root = tempfile.mkdtemp(prefix="posttrain-made-runs-")
    atexit.register(shutil.rmtree, root, ignore_errors=True)
    with RunStore.create(Path(root), "quickstart", RECIPE, ENVIRONMENT) as store:
        evaluate(store, 0, "before", 0.12, tasks)
        record_steps(store, [(i, "sft", i, (i - 1) / sft) for i in range(1, sft + 1)])
        evaluate(store, sft, "sft", 0.48, tasks)
        for i in range(1, rl + 1):
            record_steps(store, [(sft + i, "rl", i, (i - 1) / rl)])
            if i % 8 == 0 and i < rl:
                evaluate(store, sft + i, f"rl step {i}", 0.48 + 0.4 * i / rl, tasks)
        store.log_event(sft + 3, "discard", "2 of 4 groups had equal rewards and teach nothing", groups=2)
        store.log_event(sft + 9, "alarm", "entropy fell below 0.1 nats: the policy is close to deterministic")
        evaluate(store, sft + rl, "rl", 0.86, tasks)
        write_byte_tokenizer(store.folder / "model")
        return store.folder
