"""The results of the turns: medians, shares of the limit, ratios round by round, and whether all sides did the same."""

import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from posttrain.runs.speed.figures import least_sampling_seconds, least_seconds, limits_of
from posttrain.runs.speed.workloads import GROUP, workload

CURVES = ("reward", "loss", "gradient_norm")
MOST_ERRORS = 3.0
"""Standard errors between two curves that are called the same."""


def summary(sides: Sequence[Any]) -> list[dict[str, Any]]:
    """A figure for each side; what failed has its reason in place of numbers."""
    limits = {s.figure["dtype"]: limits_of(s.rounds) for s in sides if s.figure["measure"] == "limits" and s.rounds}
    return [_figure(side, limits.get(side.figure["dtype"])) for side in sides]


def _figure(side: Any, limit: Mapping[str, Any] | None) -> dict[str, Any]:
    figure = {name: value for name, value in side.figure.items() if name != "logp"}
    if side.failed is not None or not side.rounds:
        return {**figure, "failed": side.failed or "took no turn"}
    if figure["measure"] == "limits":
        assert limit is not None
        best, of_torch = (
            {kind: {"gflops": rate, "product": name} for kind, (rate, name) in limit[which].items()}
            for which in ("best", "best_of_torch")
        )
        return {**figure, "best": best, "best_of_torch": of_torch, "copy_gb_s": limit["copy"]}
    if figure["measure"] == "sampling":
        rates, least, unit = [r["tokens"] / r["seconds"] for r in side.rounds], least_sampling_seconds, "tokens/s"
    else:
        rates, least, unit = [figure["samples"] / r["seconds"] for r in side.rounds], least_seconds, "samples/s"
        figure["learner_tokens_a_second"] = statistics.median(_learner_rate(figure, r) for r in side.rounds)
        figure["sampled_tokens_a_second"] = statistics.median(r["tokens"] / r["sampling_seconds"] for r in side.rounds)
        figure["curves"] = {name: [r[name] for r in side.steps] for name in (*CURVES, "tokens")}
    figure |= {"value": statistics.median(rates), "unit": unit, "rounds": rates}
    if limit is not None:
        for name, best in (("share", limit["best"]), ("share_of_torch", limit["best_of_torch"])):
            bound = {**limit, "best": best}
            figure[name] = statistics.median(least(figure, r["tokens"], bound) / r["seconds"] for r in side.rounds)
    return figure


def _learner_rate(figure: Mapping[str, Any], result: Mapping[str, Any]) -> float:
    """Tokens a second of learning: prompts and completions, no padding, whatever a side computes beside them."""
    prompts = GROUP * sum(workload(figure["workload"], figure["samples"]).prompt_lengths)
    seconds = result.get("learning_seconds") or result["seconds"] - result["not_learning_seconds"]
    return float((prompts + result["tokens"]) / seconds)


def compared(sides: Sequence[Any]) -> list[dict[str, Any]]:
    """posttrain against each peer, ratio by ratio; above 1 is faster, and less memory is below 1."""
    alive = [side for side in sides if side.failed is None and side.rounds and side.figure["measure"] != "limits"]
    found: list[dict[str, Any]] = []
    for ours in (side for side in alive if side.figure["side"] == "posttrain"):
        for theirs in (side for side in alive if side.figure["side"] != "posttrain"):
            same = ("measure", "batch") if ours.figure["measure"] == "sampling" else ("measure",)
            if all(ours.figure.get(name) == theirs.figure.get(name) for name in same):
                found += _ratios(ours, theirs)
    return found


def _ratios(ours: Any, theirs: Any) -> Iterator[dict[str, Any]]:
    a, b = ours.figure, theirs.figure
    batch = f", batch {a['batch']}" if "batch" in a else ""
    versus = f"posttrain {a['dtype']} against {b['side']} {b['dtype']}{batch}"

    def ratio(measure: str, of: Callable[[Any], float]) -> Any:
        values = [of(x) / of(y) for x, y in zip(ours.rounds, theirs.rounds, strict=False)]
        who = {"dtype": a["dtype"], "peer": b["side"], "peer_dtype": b["dtype"]}
        more = {"batch": a["batch"]} if "batch" in a else {}
        median = statistics.median(values)
        return {"what": f"{measure}: {versus}", "measure": measure, **who, **more, "ratio": median, "rounds": values}

    if a["measure"] == "sampling":
        yield ratio("sampling", lambda r: r["tokens"] / r["seconds"])
        return
    yield ratio("grpo", lambda r: 1 / r["seconds"])
    if all("cpu_seconds" in r for r in (*ours.rounds, *theirs.rounds)):  # of all threads: other load counts less
        yield ratio("grpo_cpu", lambda r: 1 / r["cpu_seconds"])
    # Where lengths are drawn by each side, the tokens of a step differ by chance.
    yield ratio("grpo_tokens", lambda r: r["tokens"] / r["seconds"])
    yield ratio("learner", lambda r: _learner_rate(a, r))
    memory = ratio("peak_memory", lambda r: 1.0)
    yield {**memory, "ratio": a["peak_memory_bytes"] / b["peak_memory_bytes"], "rounds": []}


def same_results(sides: Sequence[Any], model: Path) -> list[dict[str, Any]]:
    """Whether every peer does what posttrain does, in the same number type: log-probabilities, and curves.

    Draws are each side's own, so curves agree within noise: the mean difference of a step is held against its
    standard error.
    """
    found = []
    trainers = [s for s in sides if s.figure["measure"] == "grpo" and s.failed is None and len(s.steps) > 2]
    for ours in (side for side in trainers if side.figure["side"] == "posttrain"):
        dtype = ours.figure["dtype"]
        for theirs in trainers:
            if theirs is ours or theirs.figure["side"] == "posttrain" or theirs.figure["dtype"] != dtype:
                continue
            told: dict[str, Any] = {"peer": theirs.figure["side"], "dtype": dtype}
            mine = logp_of_a_text(model, dtype)
            apart = max(abs(x - y) for x, y in zip(mine, theirs.figure["logp"], strict=True))
            told["logp_largest_difference"] = apart
            told["curves"] = {name: same_curve(name, ours.steps, theirs.steps) for name in CURVES}
            found.append(told)
    return found


def same_curve(name: str, ours: Sequence[Mapping[str, Any]], theirs: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Two curves, step by step."""
    apart = [x[name] - y[name] for x, y in zip(ours, theirs, strict=False)]
    mean, error = statistics.mean(apart), statistics.stdev(apart) / math.sqrt(len(apart))
    return {
        "posttrain": statistics.mean(r[name] for r in ours),
        "peer": statistics.mean(r[name] for r in theirs),
        "difference": mean,
        "standard_error": error,
        "within_noise": abs(mean) <= MOST_ERRORS * error or abs(mean) < 1e-6,
    }


def logp_of_a_text(model: Path, dtype: str) -> list[float]:
    """What posttrain returns for the text that peers are asked about when they start."""
    import torch

    from posttrain.models import Model
    from posttrain.policies import Packed
    from posttrain.policies.loading import load_policy
    from posttrain.signals import LOGP

    source = Model(source=str(model), dtype=dtype)  # type: ignore[arg-type]
    policy = load_policy("policy", source, {}, torch.device("cpu"))
    packed = Packed(token_ids_L=torch.arange(32, 96), starts=(0, 64))
    with torch.no_grad():
        logp: list[float] = policy.evaluate(packed, torch.arange(1, 64))[LOGP].float().tolist()
    return logp
