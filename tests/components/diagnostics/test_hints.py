"""Simulated hints: the ladder by hand, and what transfer decides."""

from typing import Any

import numpy as np
import pytest

from posttrain.components.diagnostics import Subject
from posttrain.components.diagnostics.hints import ARMS, Hints, _step
from posttrain.errors import UserError


def found(*names: str, **settings: Any) -> dict[str, Any]:
    unused: Any = None
    subjects = [Subject(name=name, load=unused, serve=unused) for name in names]
    given = {"seeds": 2, "rollouts": 10_000, "tasks": 64, **settings}
    return dict(Hints(**given).examine(*subjects).values["found"])


def test_each_group_climbs_its_own_ladder() -> None:
    """Tasks of difficulty 1, 2, 3 are solved from a share of 0, 0.5, and never."""
    asked: list[tuple[list[float], float]] = []

    def group(hard_B: np.ndarray, share: float) -> np.ndarray:
        asked.append((hard_B.tolist(), share))
        return np.array([0.5 if share >= {1.0: 0.0, 2.0: 0.5, 3.0: 1.0}[hard] else 0.0 for hard in hard_B.tolist()])

    share_B, hinted_B, sampled = _step("ladder", np.array([1.0, 2.0, 3.0]), group)
    assert asked == [([1.0, 2.0, 3.0], 0.0), ([2.0, 3.0], 0.25), ([2.0, 3.0], 0.5), ([3.0], 0.75)]
    assert (share_B.tolist(), hinted_B.tolist(), sampled) == ([0.5, 0.5, 0.0], [False, True, True], 8)
    assert _step("always", np.array([3.0]), group)[1:] == (np.array([True]), 1)
    assert _step("grpo", np.array([3.0]), group)[2] == 1


def test_the_ladder_wins_where_gains_carry_over_and_only_there() -> None:
    rows = found(*ARMS, rollouts=20_000)
    assert rows["ladder"]["mean"] > 0.5 > rows["always"]["mean"] > rows["grpo"]["mean"] > rows["more"]["mean"] > 0.0
    assert found("ladder", transfer=0.0)["ladder"]["mean"] < 0.05


def test_an_unknown_arm() -> None:
    with pytest.raises(UserError, match="'ladders' is no arm of this simulation; take some of grpo, more"):
        found("ladders")
