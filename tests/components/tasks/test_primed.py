"""Episodes that show all of some behaviours."""

import pytest

from posttrain.components.environments.sources import BEHAVIOURS, Sources
from posttrain.components.tasks.episodes import Episodes
from posttrain.components.tasks.primed import Primed
from posttrain.errors import UserError


def test_episodes_with_all_behaviours_right_or_wrong() -> None:
    shown = Primed(tasks=Episodes(size=100), environment=Sources(), behaviours=BEHAVIOURS).load()
    assert 5 < len(shown) < 50
    for task in shown:
        [episode] = task.episodes
        texts = [part.text for part in episode if part.actor == "policy"]
        assert {"<search>A</search>", "<search>B</search>", "<scripts>who</scripts>"} <= set(texts)
        assert not any(part.ended for part in episode if part.actor == "policy"), "stop strings end the turns"
        assert episode[-1].actor == "policy"
    wrong = Primed(tasks=Episodes(size=100), environment=Sources(player="careful_wrong"), behaviours=BEHAVIOURS)
    assert [task.key for task in wrong.load()] == [task.key for task in shown]


def test_episodes_are_kept_by_their_answers() -> None:
    hasty = Sources(player="hasty")
    counts = [
        len(Primed(tasks=Episodes(size=100), environment=hasty, answers=answers).load())  # type: ignore[arg-type]
        for answers in ("any", "right", "wrong")
    ]
    assert counts[0] == 100 == counts[1] + counts[2] and counts[1] > 60
    assert len(Primed(tasks=Episodes(size=100), environment=hasty, most=7).load()) == 7


def test_none_is_an_error() -> None:
    with pytest.raises(UserError, match="name fewer behaviours"):
        Primed(tasks=Episodes(size=5), environment=Sources(player="hasty"), behaviours=("authority",)).load()
