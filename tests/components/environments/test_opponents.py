"""Other players of a game: drawn, a script, or a model, in the games of OpenSpiel and PettingZoo."""

import importlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from posttrain.components.environments._foreign import make
from posttrain.components.environments._foreign.open_spiel import OpenSpiel
from posttrain.components.environments._foreign.opponents import Opponents
from posttrain.components.environments._foreign.pettingzoo import PettingZoo
from posttrain.components.environments.foreign import Foreign

NAMES = {0: "Pass", 1: "Bet", 2: "Bet all"}


class Pennies:
    """OpenSpiel's interface, both players at once: the first one wins where the pennies are the same."""

    simultaneous = True

    def __init__(self) -> None:
        self.played: list[int] = []

    def new_initial_state(self) -> "Pennies":
        return type(self)()

    def num_players(self) -> int:
        return 2

    def get_game(self) -> Any:
        kind = SimpleNamespace(provides_observation_string=False, provides_information_state_string=True)
        return SimpleNamespace(get_type=lambda: kind)

    def is_terminal(self) -> bool:
        return len(self.played) == 2

    def is_chance_node(self) -> bool:
        return False

    def is_simultaneous_node(self) -> bool:
        return self.simultaneous

    def current_player(self) -> int:
        return len(self.played)

    def apply_actions(self, actions: list[int]) -> None:
        self.played = actions

    def apply_action(self, action: int) -> None:
        self.played.append(action)

    def legal_actions(self, player: int) -> list[int]:
        return [0, 1]

    def action_to_string(self, player: int, action: int) -> str:
        return ("heads", "tails")[action]

    def information_state_string(self, player: int) -> str:
        return f"player {player}"

    def returns(self) -> list[float]:
        same = len(set(self.played)) == 1
        return [0.0, 0.0] if not self.is_terminal() else [1.0, -1.0] if same else [-1.0, 1.0]


class InTurn(Pennies):
    """One player after the other."""

    simultaneous = False


@pytest.mark.parametrize(
    ("text", "action"),
    [("bet", 1), ("2", 2), ("I pass, you bet", 0), ("I Bet all.", 2), ("alphabet bet", 1), (" Pass\n", 0)],
)
def test_the_first_legal_action_that_a_text_names(text: str, action: int) -> None:
    assert Opponents("role:bob").read(text, NAMES) == action


def test_a_text_that_names_none_has_one_drawn() -> None:
    own, other = Opponents("role:bob"), Opponents("role:bob")
    own.random.seed(3)
    other.restore([3, [*own.state()[1]], None])
    drawn = [own.read("well", NAMES) for _ in range(30)]
    assert set(drawn) == set(NAMES) and drawn == [other.read("?", NAMES) for _ in range(30)]


@pytest.mark.parametrize("game", [Pennies, InTurn])
@pytest.mark.parametrize("place", [0, 1])
def test_a_model_reads_what_its_player_sees_and_acts(game: type[Pennies], place: int) -> None:
    """Where it is the second player of a game in turns, the other one acts first."""
    world = OpenSpiel(game(), "role:bob", place)
    seen = world.reset(0, {})
    if game is InTurn and place == 1:
        assert seen.request == [{"role": "user", "content": "player 0\nActions: heads, tails"}]
        seen = world.reply("heads")
        assert (seen.text, seen.legal) == ("player 1", ["heads", "tails"])
        last = world.step("tails")
    else:
        assert (seen.text, seen.request) == (f"player {place}", None)
        seen = world.step("tails")
        assert seen.request is not None and seen.request[0]["content"].startswith(f"player {1 - place}\n")
        last = world.reply("I take heads.")
    assert last.terminated and last.reward == (-1.0 if place == 0 else 1.0) and last.other == -last.reward


def test_a_script_acts_and_without_one_it_is_drawn(tmp_path: Path) -> None:
    (tmp_path / "other.py").write_text("def other(messages):\n    return 'tails' if 'heads' in str(messages) else ''\n")
    for _ in range(3):
        world = OpenSpiel(Pennies(), f"{tmp_path}/other.py:other")
        world.reset(0, {})
        assert world.step("1").reward == 1.0
    found = set()
    for seed in range(20):
        world = OpenSpiel(InTurn())
        world.reset(seed, {})
        found.add(world.step("1").reward)
    assert found == {1.0, -1.0}


class Turns:
    """PettingZoo's interface of a game in turns: two agents call a number, and the larger one wins."""

    possible_agents = ("a", "b")

    def reset(self, seed: int) -> None:
        self.called: list[int] = []
        self.over: list[str] = []

    @property
    def agents(self) -> list[str]:
        return [agent for agent in self.possible_agents if agent not in self.over]

    @property
    def agent_selection(self) -> str:
        return self.agents[0] if len(self.called) == 2 else self.possible_agents[len(self.called)]

    @property
    def terminations(self) -> dict[str, bool]:
        return {agent: len(self.called) == 2 for agent in self.agents}

    @property
    def truncations(self) -> dict[str, bool]:
        return dict.fromkeys(self.agents, False)

    def action_space(self, agent: str) -> Any:
        return SimpleNamespace(n=3)

    def last(self) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        done, place = len(self.called) == 2, self.possible_agents.index(self.agent_selection)
        reward = float(self.called[place] - self.called[1 - place]) if done else 0.0
        return {"observation": f"you are {self.agent_selection}"}, reward, done, False, {}

    def step(self, action: int | None) -> None:
        if action is None:
            self.over.append(self.agent_selection)
        else:
            self.called.append(action)

    def close(self) -> None:
        pass


@pytest.mark.parametrize("place", [0, 1])
def test_a_model_plays_the_other_agent_of_pettingzoo(place: int) -> None:
    world = PettingZoo(Turns(), "text", "role:bob", place)
    seen = world.reset(0, {})
    if place == 0:
        assert seen.text == "you are a"
        assert world.step("2").request == [{"role": "user", "content": "you are b\nActions: 0, 1, 2"}]
        last = world.reply("I call 1")
    else:
        assert seen.request is not None and seen.request[0]["content"].startswith("you are a")
        assert world.reply("1").text == "you are b"
        last = world.step("2")
    assert last.terminated and last.reward == 1.0 and last.other == -1.0


def test_roles_of_both_libraries() -> None:
    for source in ("open_spiel:kuhn_poker", "pettingzoo:classic.tictactoe_v3"):
        assert Foreign(source=source, user="role:bob").roles == {"bob"}


@pytest.mark.parametrize(
    ("source", "module"), [("open_spiel:kuhn_poker", "pyspiel"), ("pettingzoo:classic.tictactoe_v3", "pettingzoo")]
)
def test_the_libraries_themselves(source: str, module: str) -> None:
    pytest.importorskip(module)
    if module == "pettingzoo":
        pytest.importorskip("pygame")
    importlib.import_module(module)
    for place in (0, 1):
        world = make(source, {"user": "role:bob", "player": place}, "text", "hermes")
        seen, requests = world.reset(1, {}), 0
        for _ in range(30):
            if seen.terminated:
                break
            requests += seen.request is not None
            seen = world.reply("0") if seen.request else world.step((seen.legal or ["?"])[0])
            assert seen.other is None or seen.terminated
        assert seen.terminated and requests and seen.other is not None
        world.close()
