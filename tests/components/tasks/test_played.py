import pytest

from posttrain.components.environments.calculator import Calculator
from posttrain.components.environments.corridor import Corridor as Environment
from posttrain.components.environments.try_again import TryAgain
from posttrain.components.tasks.arithmetic import Arithmetic
from posttrain.components.tasks.corridor import Corridor
from posttrain.components.tasks.guessing import Guessing
from posttrain.components.tasks.played import Played
from posttrain.errors import UserError

EQUALS = Calculator(opening=" ", closing="=")


def test_demonstrations_are_cut_at_the_calls_and_the_results_come_in_between() -> None:
    plain = Arithmetic(size=20, terms=(3, 3)).load()
    played = Played(tasks=Arithmetic(size=20, terms=(3, 3), calls=True), environment=EQUALS).load()
    for task, written in zip(played, plain, strict=True):
        (episode,) = task.episodes
        assert task.demonstrations == ()
        assert [(u.actor, u.ended) for u in episode] == [
            ("policy", False),
            ("environment", True),
            ("policy", False),
            ("environment", True),
            ("policy", True),
        ]
        assert "".join(u.text for u in episode) == written.demonstrations[0]


def test_random_actions_are_played_until_the_environment_ends_or_the_turns_are_over() -> None:
    source = Corridor(size=60, cells=(3, 3))
    tasks = Played(tasks=source, environment=Environment(horizon=9), actions=("f", "s"), turns=4).load()
    assert [t.prompt for t in tasks] == [t.prompt for t in source.load()], "so that held-out tasks are found again"
    lengths = set()
    for task in tasks:
        (opening, *rest) = task.episodes[0]
        assert (opening.actor, opening.text) == ("environment", "At 1.")
        assert rest[-1].actor == "policy"
        said = [u.text for u in rest if u.actor == "policy"]
        lengths.add(len(said))
        seen = [f"At {1 + said[: i + 1].count('f')}." for i in range(len(said) - 1)]
        assert [u.text for u in rest if u.actor == "environment"] == seen
        assert len(said) == 4 or said.count("f") == 2
    assert lengths == {2, 3, 4}


def test_another_seed_plays_otherwise() -> None:
    first = Played(tasks=Guessing(size=20), environment=TryAgain(), actions=("a", "b"), turns=3)
    other = Played(tasks=Guessing(size=20), environment=TryAgain(), actions=("a", "b"), turns=3, seed=1)
    assert [t.episodes for t in first.load()] != [t.episodes for t in other.load()]


def test_tasks_of_another_environment_are_refused() -> None:
    with pytest.raises(UserError, match="is no corridor"):
        Played(tasks=Arithmetic(size=3), environment=Environment(), actions=("f",)).load()
