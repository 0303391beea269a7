"""More targets of `benchmarks.fuzz`: run folders, adapters, indices, chat templates, pictures."""

import contextlib
import hashlib
import io
import json
import random
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from benchmarks import _hostile_models, _hostile_runs
from benchmarks._hostile_data import GOOD as GOOD_DATA
from benchmarks._mutations import mutate_bytes, mutate_json

Case = tuple[Sequence[str], Sequence[str]]
JOURNALS = ("metrics.jsonl", "timing.jsonl", "events.jsonl", "evals.jsonl", "history.jsonl")
TEMPLATE = (
    "{% for m in messages %}{% if loop.first and m.role == 'system' %}{{ m.content|trim }}{% else %}"
    "<|im_start|>{{ m['role'] }}\n{{ m.content }}<|im_end|>\n{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% set ns = namespace(a=1) %}{{ ns.a + 1 }}{% endif %}"
)
PIECES = (
    "{%", "%}", "{{", "}}", "|", "9**9", "loop", "range(99999)", "*", "'", '"', "[", "]", "namespace", ".__class__",
    "|tojson", "|join", "{% for a in messages %}", "{% endfor %}", "|batch(9)", "macro", "\x1b]", "\udc80",
)  # fmt: skip


def made_run(run: Callable[[Sequence[str]], int], small: Sequence[str]) -> None:
    """Make the run that cases are made from, where there is none yet."""
    if not Path("made").exists():
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            _hostile_runs.make_run(Path.cwd(), run, small)


def run_folder(rng: random.Random) -> Case:
    """A run in which one file is another: a journal, its settings, or a part of a checkpoint, resealed or not."""
    run = Path("mutated-run")
    shutil.rmtree(run, ignore_errors=True)
    shutil.copytree("made/grpo-1", run)
    step = max((run / "checkpoints").iterdir())  # the newest
    named = [run / name for name in (*JOURNALS, "environment.json", "recipe.yaml", "summary.json")]
    path = rng.choice([*named, step / "manifest.json", step / "state.json", step / "state.json"])
    content = path.read_bytes()
    if path.suffix == ".json":
        content = mutate_json(rng, content)
    elif path.suffix == ".jsonl" and rng.random() < 0.6:
        lines = content.splitlines() or [b"{}"]
        place = rng.randrange(len(lines))
        lines[place] = mutate_json(rng, lines[place])
        content = b"\n".join(lines) + b"\n"
    else:
        content = mutate_bytes(rng, content)
    path.write_bytes(content)
    if path.name == "state.json" and rng.random() < 0.9:
        manifest = json.loads((step / "manifest.json").read_text())
        manifest["files"]["state.json"] = {"bytes": len(content), "sha256": hashlib.sha256(content).hexdigest()}
        (step / "manifest.json").write_text(json.dumps(manifest))
    return [rng.choice(["resume", "resume", "show"]), str(run)], [""]


def adapter(rng: random.Random, small: Sequence[str]) -> Case:
    """An adapter whose config is another."""
    shutil.rmtree("adapter", ignore_errors=True)
    _hostile_models.GOOD["adapter"]()
    path = Path("adapter/adapter_config.json")
    path.write_bytes(mutate_json(rng, path.read_bytes()))
    return ["run", *small, "model=adapter"], ["adapter", "models.policy"]


def index(rng: random.Random, small: Sequence[str]) -> Case:
    """Shards whose index is another."""
    shutil.rmtree("mutated", ignore_errors=True)
    shutil.copytree("tiny", "mutated")
    weights = Path("mutated/model.safetensors")
    content = weights.read_bytes()
    names = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    weights.rename("mutated/shard.safetensors")
    good = json.dumps({"weight_map": {name: "shard.safetensors" for name in names if name != "__metadata__"}})
    Path("mutated/model.safetensors.index.json").write_bytes(mutate_json(rng, good.encode()))
    return ["run", *small, "model=mutated"], ["mutated", "models.policy"]


def template(rng: random.Random, small: Sequence[str]) -> Case:
    """A chat template with other pieces in it."""
    shutil.rmtree("mutated", ignore_errors=True)
    shutil.copytree("tiny", "mutated")
    text = TEMPLATE
    for _ in range(rng.randint(1, 4)):
        begin = rng.randint(0, len(text))
        text = text[:begin] + rng.choice(PIECES) + text[begin + rng.randint(0, 6) :]
    content = text.encode("utf-8", "surrogateescape")
    path = Path("mutated/chat_template.jinja")
    path.write_bytes(mutate_bytes(rng, content) if rng.random() < 0.3 else content)
    return ["run", *small, "tasks.as_chat=true", "model=mutated"], ["mutated", "tasks", "task ", "chat"]


def picture(rng: random.Random, small: Sequence[str]) -> Case:
    """A picture of other bytes."""
    extra = GOOD_DATA["image"]()
    path = Path("picture.png")
    path.write_bytes(mutate_bytes(rng, path.read_bytes()))
    kept = [part for part in small if not part.startswith(("tasks=", "model="))]
    return ["run", *kept, *extra], ["picture.png", "mine.jsonl", "task "]


def targets(small: Sequence[str], run: Callable[[Sequence[str]], int]) -> Mapping[str, Callable[[random.Random], Case]]:
    """By name."""

    def runs(rng: random.Random) -> Case:
        made_run(run, small)
        return run_folder(rng)

    return {
        "runs": runs,
        "adapters": lambda rng: adapter(rng, small),
        "indices": lambda rng: index(rng, small),
        "chat templates": lambda rng: template(rng, small),
        "images": lambda rng: picture(rng, small),
    }
