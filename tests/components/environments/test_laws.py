"""The laws of environments: episodes repeat, alone and in company, and no turn ends more than its own episode."""

import asyncio
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from posttrain.cli.world import _check, _environment, _task
from posttrain.components.environments import Environment
from tests.components.rewards.programs import tier_for

NEEDED = {"archive": ["pages=pages"], "foreseen": ["environment=workshop"], "shell": ["horizon=2"]}
"""Settings without which one cannot be made."""
PAGE = Path(__file__).parents[3] / "docs" / "worlds.md"
SLOW = ("shell",)
every_kind = pytest.mark.parametrize(
    "kind",
    [pytest.param(kind, marks=[pytest.mark.slow] if kind in SLOW else []) for kind in sorted(Environment.kinds())],
)


@cache
def checked(kind: str) -> dict[str, Any]:
    """What ``posttrain world check`` finds."""
    if kind == "shell":
        tier_for("sh", "sort", "tail")
    environment = _environment(kind, NEEDED.get(kind, ()))
    environment.check([_task(0)])
    return asyncio.run(_check(environment, ("1",), 0, 20))


@every_kind
def test_episodes_repeat_and_faults_stay_in_theirs(kind: str) -> None:
    found = checked(kind)
    assert found["repeats"] and found["repeats_in_company"] and found["survives_faults"]
    if found["has_solver"]:
        assert found["mean_reward_of_solver"] > found["mean_reward_at_random"]


@every_kind
def test_the_page_has_what_was_found(kind: str) -> None:
    """All but the rewards, whose digits are not a law."""
    rows = [
        line.split("|") for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith(f"| `{kind}` ")
    ]
    assert len(rows) == 1, f"{kind}: docs/worlds.md has {len(rows)} rows of it"
    found = checked(kind)
    words = [rows[0][place].strip() for place in (2, 3, 4, 5, 6)]
    keys = ("repeats", "repeats_in_company", "survives_faults", "lists_legal_actions", "has_solver")
    assert words == ["yes" if found[key] else "no" for key in keys]
