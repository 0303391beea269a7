"""The estimate of a run's memory against its measured peak, on CPUs.

Twelve configurations: decoders of random weights with 0.8 to 130 million, float32 and bfloat16, short and long
completions, all learned, adapters, a critic, a lag. Each is estimated by
`posttrain estimate --no-measure` and run for two steps in a process of its own; the peak is resident memory.

    python docs/experiments/peak_memory.py
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from posttrain.policies.folder import new_folder

SHAPES = {
    "0.8M": {"layers": 4, "width": 128, "heads": 4, "mlp_width": 384},
    "3M": {"layers": 4, "width": 256, "heads": 4, "mlp_width": 768},
    "25M": {"layers": 8, "width": 512, "heads": 8, "mlp_width": 1536},
    "130M": {"layers": 10, "width": 1024, "heads": 16, "mlp_width": 3072},
}
SHORT = ("prompts=4", "rollout.n=4", "rollout.sampling.max_tokens=32")
LONG = ("prompts=8", "rollout.n=8", "rollout.sampling.max_tokens=192")
RUNS = (
    ("grpo", "0.8M", SHORT),
    ("grpo", "0.8M", LONG),
    ("grpo", "0.8M", (*SHORT, "models.policy.dtype=bfloat16")),
    ("grpo", "3M", SHORT),
    ("grpo", "3M", LONG),
    ("grpo", "3M", (*LONG, "schedule=lagged")),
    ("ppo", "3M", SHORT),
    ("grpo", "25M", SHORT),
    ("grpo", "25M", (*SHORT, "models.policy.dtype=bfloat16")),
    ("ppo", "25M", SHORT),
    ("grpo", "130M", SHORT),
    ("grpo", "130M", (*SHORT, "models.policy.lora.rank=8")),
)
REWARD = "reward={kind: regex, pattern: '[a-m]'}"  # a random model is rewarded too, so that it learns
COMMON = ("steps=2", "evaluation.holdout=4", "threads=1", "filters={}", REWARD)


def one(method: str, folder: Path, changes: tuple[str, ...], root: Path) -> tuple[float, float]:
    """Estimated and measured bytes."""
    words = [method, f"model={folder}", *COMMON, *changes]
    command = [sys.executable, "-m", "posttrain"]
    guess = subprocess.run(
        [*command, "estimate", *words, "--no-measure", "--json"], capture_output=True, text=True, check=True
    )
    subprocess.run([*command, "run", *words, "--runs", str(root)], capture_output=True, text=True, check=True)
    lines = (root / f"{method}-1" / "timing.jsonl").read_text().splitlines()
    peak = max(json.loads(line).get("peak_memory_bytes") or 0.0 for line in lines)
    return float(json.loads(guess.stdout)["peak_bytes"]), peak


def main() -> None:
    """Print the table."""
    table = []
    with tempfile.TemporaryDirectory() as temporary:
        for place, (method, size, changes) in enumerate(RUNS):
            folder = Path(temporary) / size
            if not folder.is_dir():
                new_folder(folder, **SHAPES[size])
            guess, peak = one(method, folder, changes, Path(temporary) / f"run{place}")
            name = " ".join([method, size, "long" if changes[:3] == LONG else "short", *changes[3:]])
            table.append([name, f"{guess / 2**20:.0f}", f"{peak / 2**20:.0f}", f"{100 * (guess / peak - 1):+.0f}"])
            print(table[-1], file=sys.stderr, flush=True)
    columns = ["run", "estimated, MiB", "measured, MiB", "difference, %"]
    print(json.dumps({"columns": columns, "table": table}, indent=1))


if __name__ == "__main__":
    main()
