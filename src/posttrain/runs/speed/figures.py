"""From raw measurements to medians and shares of the machine's limits.

The arithmetic limit is the time that the workload's operations take at the best rate of a matrix product, of those at
the shapes used, measured in the same turns in the same number type. The memory limit of decoding is the time to read
weights, keys and values once a step, at the speed of a copy.
"""

import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from posttrain.runs.speed.sizes import BY_KERNEL, SIZES
from posttrain.runs.speed.workloads import Workload, workload

Figure = dict[str, Any]
KINDS = ("sampling", "learning")
"""Of products, by what they are needed for: the first word of their names."""


def summarise(taken: Sequence[tuple[Mapping[str, Any], Sequence[Mapping[str, Any]]]]) -> list[Figure]:
    """Figures of cases; each is given as what it is of, and its results by round."""
    limits = {(f["size"], f["dtype"]): limits_of(rounds) for f, rounds in taken if f["measure"] == "limits"}
    figures: list[Figure] = []
    for figure, rounds in taken:
        limit = limits.get((figure.get("size"), figure.get("dtype")))
        if figure["measure"] == "limits":
            figures += _limit_figures(figure, limits[figure["size"], figure["dtype"]])
        elif figure["measure"] == "memory":
            figures += _memory(figure, rounds)
        elif figure["measure"] == "grpo":
            figures += _grpo(figure, rounds, limit)
        else:
            figures += _rate(figure, rounds, limit)
    return figures + list(_growth(figures))


def limits_of(rounds: Sequence[Mapping[str, Any]]) -> Figure:
    """The best products of sampling and learning, the best that torch makes, and copying."""
    products = {name: statistics.median(r["gflops"][name] for r in rounds) for name in rounds[0]["gflops"]}
    torchs = {name: rate for name, rate in products.items() if BY_KERNEL not in name}
    best, by_torch = (
        {kind: max((rate, name) for name, rate in of.items() if name.startswith(kind)) for kind in KINDS}
        for of in (products, torchs)
    )
    return {
        "products": products,
        "best": best,
        "best_of_torch": by_torch,
        "copy": statistics.median(r["copy_gb_s"] for r in rounds),
    }


def _limit_figures(figure: Mapping[str, Any], limits: Figure) -> Iterator[Figure]:
    own = {name: figure[name] for name in ("size", "dtype")}
    for kind, (rate, name) in limits["best"].items():
        products = {n: round(r, 2) for n, r in limits["products"].items() if n.startswith(kind)}
        yield {"measure": f"limit_{kind}", **own, "value": rate, "unit": "GFLOP/s", "best": name, "products": products}
    yield {"measure": "limit_memory", **own, "value": limits["copy"], "unit": "GB/s"}


def _memory(figure: Mapping[str, Any], rounds: Sequence[Mapping[str, Any]]) -> Iterator[Figure]:
    """The peak of each phase in the round where it was highest, and its parts, in MiB."""
    for phase in rounds[0]["peaks"]:
        highest = max(rounds, key=lambda r: r["peaks"][phase])
        parts = {name: count / 2**20 for name, count in highest["parts"][phase].items()}
        value = highest["peaks"][phase] / 2**20
        yield {**figure, "measure": f"memory_{phase}", "value": value, "unit": "MiB", "parts": parts}


def _rate(figure: Mapping[str, Any], rounds: Sequence[Mapping[str, Any]], limit: Figure | None) -> Iterator[Figure]:
    """Tokens a second of sampling or learning."""
    rates = [r["tokens"] / r["seconds"] for r in rounds]
    result = {**figure, "value": statistics.median(rates), "unit": "tokens/s", "rounds": rates}
    if limit is not None:
        rate = limit["best"]["learning" if figure["measure"] == "learning" else "sampling"][0] * 1e9
        result["share"] = statistics.median(r["flops"] / rate / r["seconds"] for r in rounds)
        if "bytes" in rounds[0]:
            speed = limit["copy"] * 1e9
            result["share_of_memory"] = statistics.median(r["bytes"] / speed / r["seconds"] for r in rounds)
    if "peak_gpu_bytes" in rounds[0]:
        result["peak_gpu_bytes"] = max(r["peak_gpu_bytes"] for r in rounds)
    yield result


def _grpo(figure: Mapping[str, Any], rounds: Sequence[Mapping[str, Any]], limit: Figure | None) -> Iterator[Figure]:
    """Samples a second of whole steps, and their parts; the curves are kept to be compared."""
    rates = [figure["samples"] / r["seconds"] for r in rounds]
    result = {**figure, "value": statistics.median(rates), "unit": "samples/s", "rounds": rates}
    parts = ("sampling_seconds", "learning_seconds")
    result |= {p: statistics.median(r[p] for r in rounds) for p in parts if p in rounds[0]}
    result["curves"] = {name: [r[name] for r in rounds] for name in ("reward", "loss", "gradient_norm", "tokens")}
    if limit is not None:
        least = [least_seconds(figure, r["tokens"], limit) for r in rounds]
        result["share"] = statistics.median(n / r["seconds"] for n, r in zip(least, rounds, strict=True))
    yield result


def least_seconds(figure: Mapping[str, Any], tokens: float, limit: Figure) -> float:
    """Time of a step's operations at the rates of the limits."""
    return least_sampling_seconds(figure, tokens, limit) + least_learning_seconds(figure, tokens, limit)


def least_sampling_seconds(figure: Mapping[str, Any], tokens: float, limit: Figure) -> float:
    """The part of sampling.

    Completions are as long as those that were drawn for the workload, times what makes their tokens those of the step.
    """
    size, workload = SIZES[figure["size"]], _workload(figure)
    flops = size.sampling_flops(workload.prompt_lengths, workload.lengths)
    return float(flops * tokens / sum(map(sum, workload.lengths)) / limit["best"]["sampling"][0] / 1e9)


def least_learning_seconds(figure: Mapping[str, Any], tokens: float, limit: Figure) -> float:
    """The part of learning."""
    size, workload = SIZES[figure["size"]], _workload(figure)
    flops = size.learning_flops(workload.prompt_lengths, workload.lengths)
    return float(flops * tokens / sum(map(sum, workload.lengths)) / limit["best"]["learning"][0] / 1e9)


def _workload(figure: Mapping[str, Any]) -> Workload:
    return workload(figure["workload"], figure.get("samples") or figure["batch"])


def _growth(figures: Sequence[Figure]) -> Iterator[Figure]:
    """Tokens a second with many requests waiting, against few."""
    grown = [f for f in figures if f["measure"] == "growth"]
    for dtype in dict.fromkeys(f["dtype"] for f in grown):
        few, *_, many = sorted((f for f in grown if f["dtype"] == dtype), key=lambda f: f["waiting"])
        yield {
            "measure": "growth_ratio",
            "size": few["size"],
            "dtype": dtype,
            "waiting": [few["waiting"], many["waiting"]],
            "value": many["value"] / few["value"],
            "unit": "ratio",
        }
