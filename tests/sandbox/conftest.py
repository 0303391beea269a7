"""A pool that the tests of the sandbox share: the strongest tier that is available here."""

from collections.abc import Iterator

import pytest

from posttrain.sandbox import Pool, find_tier


@pytest.fixture(scope="session")
def pool() -> Iterator[Pool]:
    found = find_tier()
    if found.tier == "none":
        pytest.skip(f"no sandbox here: {found.why_not}")
    made = Pool(found.tier, 1)
    yield made
    made.close()
