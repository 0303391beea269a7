"""Other libraries' environments and plain classes, each episode in a process that can be killed."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

import pytest

from posttrain.components.environments import EnvironmentFailed, Observation, Outcome, Verdict, _foreign
from posttrain.components.environments._foreign import LIBRARIES, Seen, make, split
from posttrain.components.environments.foreign import Foreign
from posttrain.errors import UserError
from posttrain.types import Task

BAD = """
import os, random, time
import numpy as np
class Bad:
    def reset(self, seed, wish="none"): return f"wish {wish}"
    def step(self, action):
        print("noise")
        if action == "hang": time.sleep(100)
        if action == "exit": raise SystemExit(7)
        if action == "die": os._exit(7)
        if action == "grow": return str(len(bytearray(4 << 30)))
        if action == "nan": return "x", float("nan"), False, False, {}
        if action == "none": return "x", None, False, False, {}
        if action == "bytes": return b"x"
        if action == "long": return "y" * 10_000_000
        if action == "draw": return f"{random.random()} {np.random.rand()}"
        if action == "end": return "over", 2, False, True, {}
        return None
class Untyped:
    def reset(self, seed): return ""
    def tool(self, a): return a
class Needy(Bad):
    def reset(self, seed, wish): return wish
"""
BUY = '<tool_call>{{"name": "buy", "arguments": {{"item": "{}", "n": {}}}}}</tool_call>'
Story = tuple[Observation, list[Outcome], Verdict | None, dict[str, float]]


async def story(environment: Foreign, actions: Sequence[str], key: str = "a", seed: int = 0, **fields: Any) -> Story:
    async with environment.open(Task(key=key, prompt="Go.", fields=fields), Random(seed).random) as instance:
        first, outcomes = instance.begin(), []
        for action in actions:
            outcomes.append(await instance.step(action))
            if outcomes[-1].done:
                break
        await instance.finish()
        return first, outcomes, instance.verdict(), instance.measures()


def played(environment: Foreign, actions: Sequence[str], key: str = "a", seed: int = 0, **fields: Any) -> Story:
    return asyncio.run(story(environment, actions, key, seed, **fields))


@pytest.fixture(scope="module")
def bad(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("bad") / "bad.py"
    path.write_text(BAD)
    return path


def test_sources() -> None:
    assert split("FrozenLake-v1") == ("gymnasium", "FrozenLake-v1")
    assert split("mine:Mine-v0") == ("gymnasium", "mine:Mine-v0")
    assert split("open_spiel:go") == ("open_spiel", "go")
    assert split("mine.py:Shop") == ("plain", "mine.py:Shop")


def test_an_adapter_is_under_100_lines() -> None:
    folder = Path(str(_foreign.__file__)).parent
    long = {name for name in LIBRARIES if len((folder / f"{name}.py").read_text().splitlines()) >= 100}
    assert not long


def test_a_plain_class_is_a_set_of_tools() -> None:
    shop = Foreign()
    shop.check([Task(key="a", prompt="Go.")])
    first, *_ = played(shop, [], wish="milk")
    assert '"name": "buy"' in first.text
    assert "_total" not in first.text
    assert "milk. Prices" in first.text
    wrong = '<tool_call>{"name": "buy", "arguments": {"item": 3}}</tool_call>'
    both = wrong + BUY.format("apple", 1)
    _, (outcome, end), verdict, measures = played(shop, [both, "Good bye."], wish="milk")
    bad, good = outcome.observation.text.strip().splitlines()
    assert bad == "<tool_response>error: item: Input should be a valid string</tool_response>"
    assert good.startswith("<tool_response>basket: ")
    assert end.done
    assert verdict == Verdict(value=0.0, solved=False, explanation="rewards sum to 0")
    assert measures == {"rewarded": 0.0, "calls": 1.0, "failed_calls": 1.0}


def test_the_solver_solves() -> None:
    async def solved() -> Verdict | None:
        async with Foreign().open(Task(key="b", prompt="Go."), Random(0).random) as instance:
            for _ in range(5):
                turn = await instance.solution()
                assert turn is not None
                if (await instance.step(turn)).done:
                    break
            await instance.finish()
            return instance.verdict()

    verdict = asyncio.run(solved())
    assert verdict is not None
    assert (verdict.value, verdict.solved) == (1.0, True)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("action", "why"),
    [
        ("exit", "SystemExit: 7"),
        ("die", "exit status 7"),
        ("grow", "memory"),
        ("nan", "the reward is nan"),
        ("none", "the reward is None"),
        ("bytes", "bytes were returned"),
        ("hang", "took longer than 1 s"),
    ],
)
def test_a_fault_ends_its_episode_alone(bad: Path, action: str, why: str) -> None:
    environment = Foreign(source=f"{bad}:Bad", step_seconds=1.0, memory_mib=1024)

    async def both() -> list[Any]:
        found = await asyncio.gather(
            story(environment, [action]), story(environment, ["fine", "fine"]), return_exceptions=True
        )
        return list(found)

    failed, other = asyncio.run(both())
    assert isinstance(failed, EnvironmentFailed)
    assert why in str(failed)
    assert [outcome.observation.text for outcome in other[1]] == ["\n\n", "\n\n"]


def test_observations_are_cut_and_marked(bad: Path) -> None:
    _, (outcome,), *_ = played(Foreign(source=f"{bad}:Bad", characters=10), ["long"])
    assert outcome.observation.text == "\nyyyyyyyyyy[9999990 characters were cut]\n"


def test_an_end_by_time_is_truncated(bad: Path) -> None:
    _, (outcome,), verdict, measures = played(Foreign(source=f"{bad}:Bad"), ["end"])
    assert (outcome.done, outcome.truncated, outcome.reward) == (True, True, 2.0)
    assert verdict is not None
    assert (verdict.value, verdict.solved, measures) == (0.0, True, {"rewarded": 2.0})


def test_global_draws_belong_to_the_episode(bad: Path) -> None:
    environment = Foreign(source=f"{bad}:Bad")

    async def company() -> list[Story]:
        return await asyncio.gather(*(story(environment, ["draw"] * 3, seed=seed) for seed in (0, 0, 1)))

    alone = played(environment, ["draw"] * 3, seed=0)
    first, second, other = asyncio.run(company())
    assert alone == first == second
    assert other[1] != first[1]


def test_what_does_not_fit_is_refused(bad: Path, tmp_path: Path) -> None:
    task = Task(key="a", prompt="Go.")
    with pytest.raises(UserError, match="no type for its parameter 'a'"):
        Foreign(source=f"{bad}:Untyped").check([task])
    with pytest.raises(UserError, match="no field 'wish'"):
        Foreign(source=f"{bad}:Needy").check([task])
    with pytest.raises(UserError, match="has no 'Nothing'"):
        Foreign(source=f"{bad}:Nothing").check([task])
    with pytest.raises(UserError, match="write mcp:python"):
        Foreign(source="mcp:rm all").check([task])


UNSTEADY = """
import os
class Start:
    def reset(self, seed): return os.urandom(4).hex()
    def step(self, action): return "x"
class Late:
    def reset(self, seed): os.environ["STARTS"] = os.environ.get("STARTS", "") + "x"; return "same"
    def step(self, action): return action if action == "a" else os.environ["STARTS"]
    def solver(self): self.turn = getattr(self, "turn", 0) + 1; return "ab"[self.turn > 2]
class Steady(Late):
    def step(self, action): return action
"""


def test_what_does_not_repeat_is_refused(tmp_path: Path) -> None:
    """Unless it is stated; what an episode leaves in its process is found too."""
    path, task = tmp_path / "unsteady.py", Task(key="a", prompt="Go.")
    path.write_text(UNSTEADY)
    with pytest.raises(UserError, match=r"does not repeat.* its first observation .*repeatable=false"):
        Foreign(source=f"{path}:Start").check([task])
    with pytest.raises(UserError, match=r"does not repeat.* its answer to turn 3 "):
        Foreign(source=f"{path}:Late").check([task])
    Foreign(source=f"{path}:Late", repeatable=False).check([task])
    Foreign(source=f"{path}:Steady").check([task])


def test_gymnasium_in_text_and_numbers() -> None:
    pytest.importorskip("gymnasium")
    lake = Foreign(source="FrozenLake-v1", arguments={"is_slippery": False})
    lake.check([])
    first, outcomes, verdict, _ = played(lake, ["1", "down", "1", "2", "2", "1", "2"])
    assert first.text == "\n[S]FFF\nFHFH\nFFFH\nHFFG\n"
    assert first.legal == ("0", "1", "2", "3")
    assert [outcome.valid for outcome in outcomes] == [True, False, True, True, True, True, True]
    assert outcomes[-1].observation.text == "\nSFFF\nFHFH\nFFFH\nHFF[G]\n"
    assert outcomes[-1].reward == 1.0
    assert verdict is not None
    assert verdict.solved
    numbers = Foreign(source="FrozenLake-v1", view="numbers", arguments={"is_slippery": False})
    assert played(numbers, ["1"])[1][0].observation.text == "\n4\n"


def test_rollouts_share_the_start_and_not_the_chances() -> None:
    pytest.importorskip("gymnasium")
    lake = Foreign(source="FrozenLake-v1")
    walks = [played(lake, ["2"] * 6, seed=seed) for seed in range(4)]
    assert len({walk[0].text for walk in walks}) == 1
    assert len({tuple(o.observation.text for o in walk[1]) for walk in walks}) > 1
    cards = [played(Foreign(source="Blackjack-v1"), [], key=key)[0].text for key in ("a", "a", "b", "c")]
    assert cards[0] == cards[1]
    assert len(set(cards)) > 1


def test_open_spiel() -> None:
    pytest.importorskip("pyspiel")
    first, outcomes, *_ = played(Foreign(source="open_spiel:tic_tac_toe"), ["x(1,1)", "x(1,1)"])
    assert first.legal is not None
    assert len(first.legal) == 9
    assert outcomes[0].observation.text.count("o") == 1
    assert not outcomes[1].valid


def test_a_game_of_open_spiel_hides_what_others_hold_and_has_its_best_response() -> None:
    """Kuhn poker against a player who draws: (3/2 + 1/2 - 1/2) / 3 with king, queen and jack; 1 bets, 0 passes."""
    pytest.importorskip("pyspiel")
    from posttrain.components.environments._foreign.best_responses import best_response

    actions, value = best_response("kuhn_poker()")
    assert value == pytest.approx(0.5)
    assert [actions[card] for card in ("0", "1", "2", "0pb", "2pb")] == [1, 1, 0, 0, 1]
    assert best_response("leduc_poker()")[1] == pytest.approx(2.0875)
    assert best_response("go()")[0] == {}
    total = 0.0
    for seed in range(300):
        game = make("open_spiel:kuhn_poker", {}, "text", "hermes")
        game.reset(seed, {})
        seen = Seen()
        while not seen.terminated:
            seen = game.step(game.solution() or "")
            total += seen.reward
    assert 0.25 < total / 300 < 0.75
    dice = make("open_spiel:liars_dice", {}, "text", "hermes")
    assert dice.reset(0, {}).text in "123456", "its own die alone"


def test_pettingzoo() -> None:
    pytest.importorskip("pettingzoo")
    pytest.importorskip("pygame")
    _, outcomes, *_ = played(Foreign(source="pettingzoo:classic.tictactoe_v3"), ["4", "4", "0", "1", "2", "3", "5"])
    assert not outcomes[1].valid
    assert len(outcomes[0].observation.legal or ()) == 7


@pytest.mark.slow
def test_textarena() -> None:
    pytest.importorskip("textarena")
    game = Foreign(source="textarena:TicTacToe-v0")
    first, (outcome,), *_ = played(game, ["[4]"])
    assert "Available Moves" in first.text
    assert "placed their symbol (O) in cell 4" in outcome.observation.text
    assert first.text not in outcome.observation.text


@pytest.mark.slow
def test_mcp(tmp_path: Path) -> None:
    pytest.importorskip("mcp")
    (tmp_path / "server.py").write_text(
        "import os\nfrom mcp.server import MCPServer\napp = MCPServer('s')\ntotal = []\n"
        "@app.tool()\ndef pay(amount: int) -> str:\n    total.append(amount)\n    return f'paid {sum(total)}'\n"
        "@app.tool()\ndef die() -> str:\n    os._exit(7)\napp.run('stdio')\n"
    )
    server = Foreign(source=f"mcp:python {tmp_path}/server.py")
    pay = '<tool_call>{"name": "pay", "arguments": {"amount": 3}}</tool_call>'
    for _ in range(2):
        _, outcomes, *_ = played(server, [pay, pay])
        assert [outcome.observation.text for outcome in outcomes] == ["\npaid 3\n", "\npaid 6\n"]
    with pytest.raises(EnvironmentFailed, match="the server ended"):
        played(server, ['<tool_call>{"name": "die"}</tool_call>'])


def test_episodes_wait_for_one_another_beyond_a_number_and_are_the_same(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(
        "class Mine:\n"
        "    def reset(self, seed):\n        self.seed = seed\n        return 'go'\n"
        "    def step(self, action):\n        return f'{self.seed % 97}{action}', 0.0, False, False, {}\n"
    )
    found = []
    for most in (2, 6):
        environment = Foreign(source=f"{tmp_path}/mine.py:Mine", at_once=most)
        open_now, peak = [0], [0]

        async def one(
            place: int, environment: Foreign = environment, now: list[int] = open_now, top: Any = peak
        ) -> str:
            async with environment.open(Task(key=f"a{place}", prompt="x"), lambda: 0.5) as instance:
                now[0] += 1
                top[0] = max(top[0], now[0])
                instance.begin()
                outcome = await instance.step("b")
                await asyncio.sleep(0.01)
                now[0] -= 1
                return outcome.observation.text

        async def together(one: Any = one) -> list[str]:
            return list(await asyncio.gather(*(one(place) for place in range(6))))

        found.append(asyncio.run(together()))
        assert peak[0] <= most
    assert found[0] == found[1]
    with pytest.raises(ValueError, match="at_once"):
        Foreign(at_once=0)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("mine.py", "write mine.py:CLASS"),
        ("mine.py:number", "'number' of .* is 5; name a class or a function"),
        ("mine.py:Sized", "Sized cannot be called with its arguments {}: missing a required argument: 'size'"),
        ("mine.py:Bare", "made: Bare has no method reset"),
        ("none.py:Bare", "made: there is no file"),
        ("foo:bar", "'foo' is neither a module that is installed nor one of the libraries gymnasium, "),
    ],
)
def test_what_is_no_environment_is_named(
    source: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(
        "number = 5\nclass Bare: pass\nclass Sized:\n"
        "    def __init__(self, size): pass\n    def reset(self, seed): return ''\n    def step(self, a): return a\n"
    )
    with pytest.raises(UserError, match=message):
        Foreign(source=source).check([])
