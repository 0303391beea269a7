"""Tasks whose tests are worked out here, and whose demonstrations are right programs."""

import pytest

from posttrain.rewards.io_tests import IOTests
from posttrain.tasks.programs import Programs, _result
from tests.rewards.judging import judge
from tests.rewards.programs import tier_for


def test_results_by_hand() -> None:
    assert _result("a+b*2", 3, 5) == 13
    assert _result("a-b*2-a", 3, 5) == -10
    assert _result("9-a-b", 3, 5) == 1
    assert _result("a*b*4", 3, 5) == 60


def test_a_larger_set_begins_with_the_same_tasks() -> None:
    small, large = Programs(size=10).load(), Programs(size=30).load()
    assert list(small) == list(large)[:10] and len({task.prompt for task in large}) == 30


@pytest.mark.slow
def test_demonstrations_pass_their_tests_in_every_language() -> None:
    reward = IOTests(weakest=tier_for("bash", "lua", "perl", "python3"))
    for task in Programs(size=16, languages=("bash", "lua", "perl", "python")).load():
        assert judge(reward, task.demonstrations[0], task).status == "ok", task
