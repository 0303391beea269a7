"""From turns to figures, by hand."""

import pytest
import torch

from posttrain.runs.speed._limits import Limits
from posttrain.runs.speed.figures import least_seconds, limits_of, summarise
from posttrain.runs.speed.sizes import SIZES
from posttrain.runs.speed.tables import COLUMNS, rows
from posttrain.runs.speed.workloads import workload

OWN = {"size": "0.2M", "dtype": "float32"}
LIMITS = [
    {"seconds": 1, "gflops": {"sampling a": 10.0, "sampling b": 2.0, "learning a": 5.0}, "copy_gb_s": 4.0},
    {"seconds": 1, "gflops": {"sampling a": 12.0, "sampling b": 90.0, "learning a": 7.0}, "copy_gb_s": 2.0},
    {"seconds": 1, "gflops": {"sampling a": 11.0, "sampling b": 3.0, "learning a": 6.0}, "copy_gb_s": 3.0},
]


def test_the_limit_is_the_best_of_the_medians() -> None:
    limits = limits_of(LIMITS)
    assert limits["best"] == {"sampling": (11.0, "sampling a"), "learning": (6.0, "learning a")}
    assert limits["copy"] == 3.0
    faster = [{**turn, "gflops": {**turn["gflops"], "learning a by the kernel": 8.0}} for turn in LIMITS]
    assert limits_of(faster)["best"]["learning"] == (8.0, "learning a by the kernel")
    assert limits_of(faster)["best_of_torch"] == limits["best"] == limits["best_of_torch"]


def test_what_is_stored_in_bfloat16_may_be_computed_in_float32() -> None:
    """A processor without a matrix unit is faster so: a limit that had only products in bfloat16 could be beaten."""
    names = {}
    for dtype in ("float32", "bfloat16"):
        ways = Limits(SIZES["0.2M"], dtype, torch.device("cpu"), [16], 32).ways
        names[dtype] = {name for name in ways if "packed" not in name}  # there by processor and type
    assert {f"{name} in float32" for name in names["float32"]} <= names["bfloat16"]
    assert names["float32"] < names["bfloat16"] and "learning qkv 32x96x192" in names["float32"]


def test_rates_and_shares() -> None:
    turns = [{"seconds": s, "tokens": 100, "flops": 5.5e9, "bytes": 6e9} for s in (1.0, 4.0, 2.0)]
    figures = summarise(
        [
            ({"measure": "limits", **OWN}, LIMITS),
            ({"measure": "sampling", **OWN, "workload": "fixed", "batch": 8}, turns),
            ({"measure": "learning", **OWN, "workload": "fixed"}, [{"seconds": 2.0, "tokens": 8, "flops": 6e9}]),
        ]
    )
    assert [f["measure"] for f in figures[:3]] == ["limit_sampling", "limit_learning", "limit_memory"]
    sampling, learning = figures[3:]
    # Seconds of 1, 4, 2: 100, 25 and 50 tokens a second. At 11 GFLOP/s the work takes 0.5 s, at 3 GB/s 2 s.
    assert (sampling["value"], sampling["unit"], sampling["rounds"]) == (50.0, "tokens/s", [100.0, 25.0, 50.0])
    assert sampling["share"] == pytest.approx(0.25) and sampling["share_of_memory"] == pytest.approx(1.0)
    # At 6 GFLOP/s it takes 1 s of the 2.
    assert learning["value"] == 4.0 and learning["share"] == pytest.approx(0.5)


def test_a_step_of_grpo() -> None:
    figure = {"measure": "grpo", **OWN, "workload": "fixed", "samples": 16}
    size, asked = SIZES["0.2M"], workload("fixed", 16)
    sampling = size.sampling_flops([32, 32], [[64] * 8] * 2) / 11e9
    learning = size.learning_flops([32] * 2, [[64] * 8] * 2) / 6e9
    limits = limits_of(LIMITS)
    tokens = 16 * 64
    assert least_seconds(figure, tokens, limits) == pytest.approx(sampling + learning)
    assert least_seconds(figure, tokens / 2, limits) == pytest.approx((sampling + learning) / 2)
    assert asked.limit == 64
    turn = {"seconds": 2.0, "tokens": tokens, "reward": 0.1, "loss": 0.0, "gradient_norm": 1.0}
    turn |= {"sampling_seconds": 1.5, "learning_seconds": 0.5}
    found = summarise([({"measure": "limits", **OWN}, LIMITS), (figure, [turn])])[-1]
    assert found["value"] == 8.0 and found["unit"] == "samples/s"
    assert found["share"] == pytest.approx((sampling + learning) / 2)
    assert found["curves"] == {"reward": [0.1], "loss": [0.0], "gradient_norm": [1.0], "tokens": [tokens]}


def test_growth_is_many_against_few() -> None:
    def grown(waiting: int, seconds: float) -> tuple[dict[str, object], list[dict[str, float]]]:
        figure = {"measure": "growth", **OWN, "workload": "fixed", "waiting": waiting}
        return figure, [{"seconds": seconds, "tokens": waiting, "flops": 1.0}]

    ratio = summarise([grown(1024, 5.0), grown(256, 1.0)])[-1]
    assert ratio["measure"] == "growth_ratio" and ratio["value"] == pytest.approx((1024 / 5) / 256)
    assert ratio["waiting"] == [256, 1024]


def test_rows_for_people() -> None:
    figures = [
        {"measure": "sampling", **OWN, "workload": "fixed", "batch": 8, "value": 12345.6, "unit": "tokens/s"}
        | {"share": 0.256, "share_of_memory": 0.5, "rounds": [12000.0, 13000.0]},
        {"measure": "start_up", "start": "warm", "value": 2.345, "unit": "s"},
    ]
    first, second = rows(figures)
    assert len(first) == len(COLUMNS)
    assert first == ["sampling, 0.2M, float32, fixed, batch 8", "12,346 tokens/s", "26% arithmetic, 50% memory",
                     "2: 1.2e+04 to 1.3e+04"]  # fmt: skip
    assert second == ["start to first token, warm", "2.35 s", "", ""] or second[1] == "2.34 s"
