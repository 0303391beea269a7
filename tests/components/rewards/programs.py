"""What the tests of rewards that run programs share: the sandbox that is here, or a reason to skip."""

import pytest

from posttrain.sandbox import Tier, find_tier, missing_programs


def tier_for(*programs: str) -> Tier:
    """The tier of this machine; skips the test where there is none, or one of the programs is not installed."""
    found = find_tier()
    if found.tier == "none":
        pytest.skip(f"no sandbox here: {found.why_not}")
    if missing := missing_programs(programs):
        pytest.skip(f"needs {' and '.join(missing)}")
    return found.tier
