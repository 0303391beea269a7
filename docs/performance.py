"""Write docs/performance.md from what was measured: docs/measured/performance/*.json.

.venv/bin/python docs/performance.py            write what is out of date
.venv/bin/python docs/performance.py --check    say whether it is out of date, and exit with 1 if it is

``bench*.json`` are what ``posttrain bench --out`` writes, ``peers_*.json`` what ``make bench-peers`` does.
"""

import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pages import table, write_or_check

from posttrain.runs.speed.tables import COLUMNS, number, rows

ROOT = Path(__file__).resolve().parents[1]
PARTS, PAGE = ROOT / "docs" / "measured" / "performance", ROOT / "docs" / "performance.md"
INTRODUCTION = """# Performance

How fast sampling, learning and whole runs are, beside what the machine could do at most, and beside other programs
that do the same work. The tables are measured; the command above each one measures it again. This page is written by
`docs/performance.py`.

## How it is measured

**Alternating.** Programs that are compared alternate in one run, A B A B, each in a process of its own that stays alive
and measures its own wall time. The median of the rounds counts, for a ratio the median of the ratios round by round.

**Models** have random weights and the byte-level tokenizer, in the shape of Qwen3: 0.2M (2 layers,
width 96), 3.2M (4 layers, width 256), 25M (8 layers, width 512); 135M in the shape of SmolLM2 (30 layers, width 576,
49,152 tokens, of which those with text are drawn). They are ordinary folders, which every side loads.

**Workloads.** *fixed*: 128 samples, 8 for each of 16 prompts of 32 tokens, 64 new tokens each. *ragged*: prompts of 16
to 128 tokens, lengths geometric with mean 48, cut at 256. No program has the length of a completion in advance: the
model itself ends, with the same probability (0, or 1/48) at every position, because one entry of the hidden state is
constant and the end token reads it. Lengths are therefore each side's own draws from the same distribution. The reward
is the share
of digits; in *ragged* the learning rate is tiny, so that lengths stay what they are.

**The arithmetic limit** is the time that the operations which the workload cannot do without take at the best rate of a
matrix product, measured in the same turns, at the shapes used, in the same number type, with the same threads. It
counts 2 operations a weight and token forward and 6 in training, attention too, each prompt once for all its
completions, and the output projection only where logits are needed. Products are measured as torch does them, with
weights laid out in advance, and by the learner's own kernel, and those of bfloat16 in float32 too, where a processor
without a matrix unit is faster and where we make them; each for a tenth of a second: for some milliseconds a processor
may be a third faster, which nothing that takes a second could use. The kernel's products are counted since they are
faster than torch's; *by torch's products* is the share of the limit without them.
**The memory limit** of decoding is the time to read weights, keys and values once a step at the speed of a copy.

**Peers** run in an environment of their own, with the same folder, prompts, reward, learning rate, optimizer and
threads, and with the settings that make them fastest here: no gradient checkpointing (TRL has it on by default), one
micro-batch (at 135M the fastest of 8, 16 and 32, which are tried first), no evaluation, nothing saved. *trl*:
GRPOTrainer with `generate`. *trl_cb*: the same with transformers' continuous batching, with a cache that just holds all
sequences (left to itself it takes half of the machine's memory, and several times as long). *bare*: a loop of
`generate` and a hand-written step, torch and transformers only. *generate*: sampling alone. *grpo_cpu* is by the time
of processors that a step takes, which other programs on the machine change less than its duration. A step of posttrain
is a step of a real run: curriculum, rewards, alarms and the record included. Learner tokens are those of prompts and
completions, without padding, each prompt as often as it has completions, for every side, also where one computes it
once; the time is that of a step less that of sampling and scoring. Peak memory is that of the process that trains.

**The same results.** Every side must give the same log-probabilities of a fixed text before the first step, and
rewards, losses and gradient norms that agree, step by step, within 3 standard errors.

**Processors** of one name may have different instructions, so each table names them. With a matrix unit (amx_bf16)
products in bfloat16 are four times as fast as in float32; without, about half as fast.

**Start-up** is a fresh process that samples one token of the bundled model; *cold* means that this environment's files
were put out of the system's cache first.

**GPUs.** `posttrain bench --device cuda` measures the shapes of Qwen2.5-0.5B and 1.5B with random weights: decoding at
batches of 64 and 256 against the memory limit, learning of 16k packed tokens against the rate of bfloat16 products.
`make bench-peers PEERS='--device cuda'` has TRL and transformers beside it. What a GPU runs: attention of packed
sequences by torch's flash attention, in bfloat16 and float16, from torch 2.12 on (before, by blocks of padded
sequences); a decoding step by Triton kernels that read and write pages of keys and values in place, captured whole in
CUDA graphs; the choice of a token by kernels of three passes over the logits, where no rule drops any. `posttrain
doctor`, and `gpu_kernels` in a run's environment.json, say whether they are in use; `POSTTRAIN_GRAPHS=off` runs the
same kernels without graphs, `POSTTRAIN_KERNELS=off` the modules. Log-probabilities, entropies and their gradients are
one Triton kernel each, for chunks of logits that grow with the GPU's memory. Where there is no GPU, the kernels are
tested in Triton's interpreter and compiled to machine code for Ampere and Hopper, the graphs with stand-ins for the
capture, and everything around them with tensors that only claim to be on a GPU.

One H100 was there for a quarter of an hour, with torch 2.11 and 16 slow cores: `tests/gpu/test_cuda.py` passes on it,
and the tables below were measured, with attention by padded blocks, since torch was older: the other way has run on no
GPU yet. The first version, which waited for every token and cut logits as on a CPU, learned 48,800 tokens a second with
the 0.5B shape where 82,900 are learned now; sampling in the same two turns changed from 24,400 to 23,600 tokens a
second at a batch of 64, and from 69,100 to 81,300 at 256. What is left of sampling is mostly the time between small
kernels: a step of 64 tokens is 400 of them, which take 1.5 ms of some 2.0, and the prompts are computed by modules, 50
ms for eight. Of `benchmarks.peers` (64 completions of 64 tokens, 0.5B, bfloat16, transformers 5.23, TRL 1.16 without
vLLM) the time was enough for one round after the warm-up, too few for a table: a step of GRPO took 0.33 s, TRL's 1.49
s, with continuous batching 6.07 s, the bare loop 2.52 s; sampling 256 completions took 0.21 s, `generate` 2.14 s.
`posttrain run grpo device=cuda steps=40` raises the bundled model from 19.0 to 80.0 % of 200 held-out tasks, in
bfloat16 from 18.5 to 79.5 %.
"""


@dataclass(frozen=True, kw_only=True)
class Goal:
    """What is wanted of one figure."""

    of: str
    wanted: float
    where: dict[str, Any]
    """Fields that the figure, or the comparison, must have."""
    key: str = "value"
    at_most: bool = False
    form: str = "{:.2f}"

    def row(self, found: Sequence[dict[str, Any]]) -> list[str]:
        """Figure, goal, and what was measured on each kind of processor."""
        bound = f"{'at most' if self.at_most else 'at least'} {self.form.format(self.wanted)}"
        return [self.of, bound, *(self._cell([f for f in found if f["matrix_unit"] is has]) for has in (False, True))]

    def _cell(self, found: Sequence[dict[str, Any]]) -> str:
        matching = [
            f for f in found if all(f.get(name) == value for name, value in self.where.items()) and self.key in f
        ]
        if not matching:
            return "not measured"
        value = matching[-1][self.key]
        met = value <= self.wanted if self.at_most else value >= self.wanted
        return f"{self.form.format(value)}, {'met' if met else 'missed'}"


def _share(of: str, wanted: float, **where: Any) -> Goal:
    return Goal(of=of, wanted=wanted, where={"size": "3.2M", "workload": "fixed", **where}, key="share", form="{:.0%}")


def _ratio(of: str, wanted: float, measure: str, workload: str, dtype: str = "float32", **where: Any) -> Goal:
    own = {"measure": measure, "size": "3.2M", "workload": workload, "dtype": dtype, "peer": "trl"}
    return Goal(of=of, wanted=wanted, where=own | {"peer_dtype": "float32"} | where, key="ratio", form="{:.2f}x")


def _large(dtype: str, *, step: float, sampling: float, ratio: float) -> Iterator[Goal]:
    """Goals at the size of SmolLM2, in one number type."""
    own = {"size": "135M", "workload": "fixed", "dtype": dtype, "side": "posttrain"}
    than = own | {"peer": "trl", "peer_dtype": dtype, "measure": "grpo"}
    del than["side"]
    of = f"135M, fixed, {dtype}"
    yield Goal(of=f"GRPO, {of}: against TRL in {dtype}", wanted=ratio, where=than, key="ratio", form="{:.2f}x")
    yield Goal(
        of=f"GRPO, {of}: share of the limit", wanted=step, where=own | {"measure": "grpo"}, key="share", form="{:.0%}"
    )
    sampled = own | {"measure": "sampling", "batch": 64}
    yield Goal(
        of=f"sampling, {of}, batch 64: share of the limit", wanted=sampling, where=sampled, key="share", form="{:.0%}"
    )
    yield Goal(
        of=f"peak memory of a step of GRPO, {of}",
        wanted=3.2e9 / 2**20,
        where={"measure": "memory_learning", "size": "135M", "workload": "fixed", "dtype": dtype},
        at_most=True,
        form="{:,.0f} MiB",
    )


_SAMPLING = "sampling, 3.2M, fixed, batch 256"
GOALS = (
    _share(f"{_SAMPLING}, float32: share of the limit", 0.6, measure="sampling", dtype="float32", batch=256),
    _share(f"{_SAMPLING}, bfloat16: share of the limit", 0.45, measure="sampling", dtype="bfloat16", batch=256),
    _ratio(f"{_SAMPLING}, float32: against generate", 2.0, "sampling", "fixed", peer="generate", batch=256),
    _ratio(
        f"{_SAMPLING}, bfloat16: against generate in bfloat16",
        3.5,
        "sampling",
        "fixed",
        "bfloat16",
        peer="generate",
        peer_dtype="bfloat16",
        batch=256,
    ),
    _share("learner, 3.2M, fixed, float32: share of the limit", 0.75, measure="learning", dtype="float32"),
    _ratio("learner, 3.2M, fixed, float32: against TRL, on equal tokens", 1.3, "learner", "fixed"),
    _ratio("GRPO, 3.2M, fixed, float32: against TRL", 1.7, "grpo", "fixed"),
    _ratio("GRPO, 3.2M, fixed, bfloat16: against TRL in float32", 3.5, "grpo", "fixed", "bfloat16"),
    _ratio("GRPO, 3.2M, ragged, float32: against TRL", 4.0, "grpo", "ragged"),
    _ratio("GRPO, 3.2M, ragged, bfloat16: against TRL in float32", 7.0, "grpo", "ragged", "bfloat16"),
    _ratio("GRPO, 25M, fixed, float32: against TRL", 1.5, "grpo", "fixed", size="25M"),
    _ratio("GRPO, 25M, ragged, float32: against TRL", 3.5, "grpo", "ragged", size="25M"),
    Goal(
        of="peak memory of GRPO, 3.2M, fixed, float32: against TRL's",
        wanted=0.5,
        where={"measure": "peak_memory", "size": "3.2M", "workload": "fixed", "dtype": "float32", "peer": "trl"},
        key="ratio",
        at_most=True,
        form="{:.2f}x",
    ),
    Goal(
        of="sampling, 3.2M, float32: tokens/s with 1,024 requests waiting, against 256",
        wanted=0.9,
        where={"measure": "growth_ratio", "size": "3.2M", "dtype": "float32"},
        form="{:.2f}x",
    ),
    *_large("float32", step=0.8, sampling=0.65, ratio=3.0),
    *_large("bfloat16", step=0.6, sampling=0.6, ratio=4.0),
    Goal(of="start to first token, warm", wanted=3, where={"start": "warm"}, at_most=True, form="{:.1f} s"),
    Goal(of="start to first token, cold", wanted=15, where={"start": "cold"}, at_most=True, form="{:.1f} s"),
)


GOALS_TEXT = """\
On two cores of processors of one name, without and with a matrix unit (amx_bf16): with one, products in bfloat16 are
four times as fast, and so is the limit; without, they are slower than in float32, and 3.5 times what TRL does in
float32 would be all that its products can do. What is not met stays here until it is. The tables with a
matrix unit are older: since then sampling writes several tokens in one call and fetches ahead, which takes two thirds
of the time in float32, layers are learned from a few rows at a time and from more tokens at once, log-probabilities are
one kernel, and limits are measured for longer (they were the best of three goes of seven milliseconds).

At 135M the memory is measured ([below](#memory-of-a-step-135m)), with 16 completions: more are more passes of as many
tokens, and add 3 MiB each of keys and values while sampling, which is not the peak. TRL's fastest micro-batch there is
16 in float32, which takes 2.3 times our memory, and 8 in bfloat16, which takes 1.07 times as much. Losses and gradient
norms agree; in bfloat16 the mean loss, which is near 0, is 7e-5. The rewards of the two models, which begin with the
same random weights and draw other tokens, are 17 % apart in float32 and 6 % in bfloat16. When these goals were set, the
limit was that of torch's products alone: by it a step in float32 is at 115 %, in bfloat16 at 63 % as well. The ratio
to TRL in bfloat16 is not sure to a tenth: the same command with two rounds gave 4.30 (3.91 and 4.69) and 71 % half an
hour before, since TRL's step took from 29 to 38 s, and the products of the machine were slower. On another machine of
this name, whose best product in bfloat16 makes 393 GFLOP/s, it is 3.23 (two rounds), at 67 % of the limit: the slower
products are, the less of a step is left to save.
"""


def page(parts: Path) -> str:
    """The page that the measurements of a folder make."""
    loaded = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(parts.glob("*.json"))}
    lines = [INTRODUCTION, "## Goals\n", GOALS_TEXT]
    columns = ["figure", "goal", "without a matrix unit", "with one"]
    lines += table(columns, [goal.row(list(everything(loaded.values()))) for goal in GOALS])
    for name, part in loaded.items():
        lines += peers(part) if name.startswith("peers") else bench(part)
    return "\n".join(lines).rstrip("\n") + "\n"


def everything(parts: Any) -> Iterator[dict[str, Any]]:
    """Every figure and every comparison, each with the model and the workload that it is of."""
    for part in parts:
        own = {name: part[name] for name in ("size", "workload") if name in part}
        own["matrix_unit"] = has_matrix_unit(part)
        if "comparison" not in part or part["size"] == "135M":
            # What peers say of posttrain itself is in the comparisons; at 135M it is measured nowhere else.
            yield from (figure | {"matrix_unit": own["matrix_unit"]} for figure in part["figures"])
        yield from ({**own, **compared} for compared in part.get("comparison", ()))


def has_matrix_unit(part: dict[str, Any]) -> bool:
    """Whether a part was measured on a processor with one."""
    return "amx_bf16" in part["machine"].get("instructions", "")


def bench(part: dict[str, Any]) -> Iterator[str]:
    """The section of a `posttrain bench`."""
    alone = {figure["measure"] for figure in part["figures"]} <= {"memory_sampling", "memory_learning"}
    sizes = ", ".join(dict.fromkeys(figure["size"] for figure in part["figures"] if "size" in figure))
    title = f"Memory of a step, {sizes}" if alone else "Beside the machine's limits"
    if "gpu" in part["machine"]:
        title = f"Beside the limits of a GPU: {sizes}"
    yield f"## {title}{_with(part)}\n"
    yield from measured_by(part)
    yield from table(COLUMNS, rows(part["figures"]))


def _with(part: dict[str, Any]) -> str:
    return ", with a matrix unit" if has_matrix_unit(part) and "gpu" not in part["machine"] else ""


def peers(part: dict[str, Any]) -> Iterator[str]:
    """The section of one model and workload beside other programs."""
    dtype = f", {part['dtype']}" if "dtype" in part else ""
    yield f"## Beside other programs: {part['size']}, {part['workload']}{dtype}{_with(part)}\n"
    yield from measured_by(part)
    versions = ", ".join(f"{name} {version}" for name, version in part["peers"].items())
    yield f"Peers: {versions}.\n"
    figures = [f for f in part["figures"] if f["measure"] != "limits"]
    trained = [f for f in figures if f["measure"] == "grpo"]
    columns = [
        "GRPO",
        "samples/s",
        "of the limit",
        "by torch's products",
        "sampling, tokens/s",
        "learner, tokens/s",
        "peak memory",
        "start, s",
    ]
    yield from table(columns, [_trained(f) for f in trained])
    if tried := [row for figure in trained for row in _tried(figure)]:
        yield from table(["tried first, one after the other", "a step", "peak memory"], tried)
    sampled = [[_side(f), f"batch {f['batch']}", *_value(f)] for f in figures if f["measure"] == "sampling"]
    yield from table(["sampling", "", "tokens/s", "of the limit"], sampled)
    ratios = [
        [c["what"], f"{c['ratio']:.2f}", f"{min(c['rounds']):.2f} to {max(c['rounds']):.2f}" if c["rounds"] else ""]
        for c in part["comparison"]
        if c["measure"] != "grpo_tokens"
    ]
    yield from table(["posttrain against a peer", "ratio", "rounds"], ratios)
    yield from table(["the same results", "log-probabilities", "reward", "loss", "gradient norm"], _same(part))


def _trained(figure: dict[str, Any]) -> list[str]:
    if "failed" in figure:
        return [_side(figure), f"failed: {figure['failed'].splitlines()[-1]}"]
    memory = f"{figure['peak_memory_bytes'] / 2**20:,.0f} MiB"
    rates = [f"{figure[name]:,.0f}" for name in ("sampled_tokens_a_second", "learner_tokens_a_second")]
    by_torch = f"{figure['share_of_torch']:.0%}" if "share_of_torch" in figure else ""
    return [_side(figure), *_value(figure), by_torch, *rates, memory, f"{figure['seconds_to_ready']:.1f}"]


def _side(figure: dict[str, Any]) -> str:
    batch = f", micro-batch {figure['micro_batch']}" if "micro_batch" in figure else ""
    return f"{figure['side']} {figure['dtype']}{batch}"


def _tried(figure: dict[str, Any]) -> Iterator[list[str]]:
    """A row of each micro-batch that was tried."""
    for tried in figure.get("tried", ()):
        seconds = f"{min(tried['seconds']):.1f} s" if "seconds" in tried else tried["failed"].splitlines()[0]
        memory = f"{tried['peak_memory_bytes'] / 2**20:,.0f} MiB" if "seconds" in tried else ""
        yield [f"{figure['side']} {figure['dtype']}, micro-batch {tried['micro_batch']}", seconds, memory]


def _value(figure: dict[str, Any]) -> list[str]:
    if "failed" in figure:
        return [f"failed: {figure['failed'].splitlines()[-1]}", ""]
    return [number(figure["value"], "").strip(), f"{figure['share']:.0%}" if "share" in figure else ""]


def _same(part: dict[str, Any]) -> Iterator[list[str]]:
    """Differences from each peer."""
    for told in part["same_results"]:
        curves = [told["curves"][name] for name in ("reward", "loss", "gradient_norm")]
        cells = [
            f"{c['posttrain']:.4g} / {c['peer']:.4g}, {'within noise' if c['within_noise'] else 'apart'}"
            for c in curves
        ]
        yield [f"{told['peer']} {told['dtype']}", f"differ by {told['logp_largest_difference']:.1e} at most", *cells]


def measured_by(part: dict[str, Any]) -> Iterator[str]:
    """The command and the machine."""
    told = part["machine"]
    yield f"```text\n$ {part['command']}\n```\n"
    has = f" ({told['instructions']})" if "instructions" in told else ""
    on = f"{told['gpu']}, decoding {told['gpu_kernels']}, beside " if "gpu" in told else ""
    yield (
        f"{on}{told['cpu']}{has}, {told['threads']} threads of {told['cores']} cores, "
        f"{told['memory_bytes'] / 2**30:.0f} GiB, Python {told['python']}, torch {told['packages']['torch']}.\n"
    )


def main(arguments: Sequence[str]) -> int:
    """Write or check; 0 when the page is, or has been brought, up to date."""
    return write_or_check(arguments, __doc__, PAGE, lambda: page(PARTS))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
