import pytest

from posttrain.components.tasks.arithmetic import Arithmetic
from posttrain.components.tasks.unpaired import Unpaired
from posttrain.components.tasks.worked_solutions import WorkedSolutions
from posttrain.errors import UserError


def test_a_preference_becomes_a_good_and_a_bad_completion() -> None:
    paired = WorkedSolutions(size=20)
    for before, after in zip(paired.load(), Unpaired(tasks=paired, rejected=0.0).load(), strict=True):
        [pair] = before.preferences
        assert [(r.completion, r.rating) for r in after.rated] == [(pair.chosen, 1.0), (pair.rejected, 0.0)]
        assert after.preferences == ()
        assert (after.key, after.prompt, after.answer) == (before.key, before.prompt, before.answer)


def test_tasks_without_preferences_are_refused() -> None:
    with pytest.raises(UserError, match="none of the 5 tasks of kind 'arithmetic' has a preference"):
        Unpaired(tasks=Arithmetic(size=5)).load()
