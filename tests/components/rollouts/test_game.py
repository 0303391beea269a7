"""Two agents that play each other."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from posttrain.components.environments import Environment, Episode, Instance, Outcome
from posttrain.components.environments._foreign.open_spiel import OpenSpiel
from posttrain.components.environments._foreign.pettingzoo import PettingZoo
from posttrain.components.environments._foreign.serving import Served
from posttrain.components.environments._foreign.textarena import TextArena
from posttrain.components.environments.bargain import Bargain
from posttrain.components.environments.corridor import Corridor
from posttrain.components.environments.foreign import Foreign, Visit
from posttrain.components.rewards.conversation import Conversation
from posttrain.components.rewards.verdict import Verdict
from posttrain.components.rollouts import Exchange
from posttrain.components.rollouts._exchange import rollouts_of
from posttrain.components.rollouts.dialogue_tree import DialogueTree
from posttrain.components.rollouts.game import Game
from posttrain.engines import Sampling
from posttrain.errors import UserError
from posttrain.types import Group, Task, Trajectory
from tests.builders import score
from tests.components.environments.test_opponents import InTurn
from tests.components.environments.test_opponents import Turns as Numbers
from tests.components.environments.test_users import Bargain as Secrets
from tests.components.rollouts.test_dialogue import Scripted
from tests.components.rollouts.test_dialogue_tree import turn

TASK = Task(key="t", prompt="Bargain.")
PLAIN = Game(environment=Bargain(), n=1)


def played(mine: Sequence[str], theirs: Sequence[str] | None = None, rollout: Game = PLAIN) -> Any:
    """The rollouts, and what each model read."""
    writers = {"policy": Scripted(list(mine)), **({} if theirs is None else {"bob": Scripted(list(theirs))})}
    [group] = asyncio.run(rollout.collect(TASK, writers))
    return group.trajectories, [writer.read for writer in writers.values()]


def verdicts(rollouts: Sequence[Trajectory]) -> list[tuple[float, bool]]:
    found = [t.fact(Episode) for t in rollouts]
    return [(own.verdict.value, own.verdict.solved) for own in found if own is not None and own.verdict is not None]


def test_both_players_learn_from_their_own_turns_and_have_their_own_rewards() -> None:
    (alice, bob), [read] = played(["2", "7", "4", "deal"])
    assert read[0].startswith("Bargain.\nthe first offer is yours") and read[1] == "Bargain.\noffers 2\n"
    assert read[2].endswith("2\ndemands 7\n") and read[3].endswith("7\noffers 4\n")
    assert [s.text for s in alice.segments if s.trained] == ["2", "4"]
    assert [s.text for s in bob.segments if s.trained] == ["7", "deal"]
    assert verdicts((alice, bob)) == [(pytest.approx(0.54), True), (pytest.approx(0.36), True)]
    assert [s.turn for s in alice.segments] == [0, 0, 2, 2] and [s.turn for s in bob.segments] == [1, 1, 3, 3]
    fact = alice.fact(Exchange)
    assert fact is not None and fact.turns == ("2", "7", "4", "deal") and fact == bob.fact(Exchange)
    assert alice.stop_reason == bob.stop_reason == "environment" and {alice.sample, bob.sample} == {0, 1}


def test_a_partner_is_not_learned_from_and_changes_places() -> None:
    """In the second game the partner begins: what is learned from has the result of the second player."""
    rollout = replace(PLAIN, n=1, partner="bob")
    [alice], [mine, theirs] = played(["4"], ["deal"], rollout)
    assert (
        len(mine) == len(theirs) == 1
        and alice.learners == {"policy"}
        and verdicts([alice]) == [(pytest.approx(0.6), True)]
    )
    own = rollout.begun(TASK, {"policy": Scripted(["deal"]), "bob": Scripted(["3"])}, ("exchange", 1), 1)
    assert own.partner_place == 1
    swapped = replace(rollout, swapped=True)
    begun = swapped.begun(TASK, {"policy": Scripted(["deal"]), "bob": Scripted(["3"])}, ("exchange", 1), 1)
    [second] = rollouts_of(asyncio.run(begun.finish()), 1, both=True)
    assert second.sample == 3 and verdicts([second]) == [(pytest.approx(0.3), True)]
    assert [s.text for s in second.segments if s.trained] == ["deal"] and "offers 3" in second.segments[0].text


def test_turns_that_are_over_end_a_game_without_a_result() -> None:
    (alice, bob), _ = played(["1", "8", "2"], None, replace(PLAIN, max_turns=3))
    assert alice.stop_reason == bob.stop_reason == "length" and verdicts((alice, bob)) == [(0.0, False)] * 2
    held = replace(PLAIN, max_turns=3).held_out(2, Sampling(temperature=0.0))
    rollouts, _ = played(["1", "8", "2"] * 2, None, held)
    assert [t.sample for t in rollouts] == [0, 2]


class Broken(Environment):
    """Fails in the second turn of the first player."""

    def with_other(self, role: str) -> Environment:
        return self

    @property
    def roles(self) -> frozenset[str]:
        return frozenset({"bob"})

    def instance(self, task: Task, draw: Any) -> Instance:
        episode = Bargain(other="bob").instance(task, draw)
        step = episode.step

        async def once(action: str) -> Outcome:
            episode.step = broken  # type: ignore[method-assign]
            return await step(action)

        async def broken(action: str) -> Outcome:
            raise ValueError("no more")

        episode.step = once  # type: ignore[method-assign]
        return episode


def test_a_failure_ends_the_game_of_both_and_is_no_result() -> None:
    (alice, bob), _ = played(["1", "8", "2"], None, Game(environment=Broken(), n=1))
    assert "no more" in alice.failure and alice.failure == bob.failure and verdicts((alice, bob)) == []


def test_an_environment_without_another_player_is_refused_before_anything_is_sampled() -> None:
    for environment in (Corridor(), Foreign()):
        with pytest.raises(UserError, match="has no other player, and two agents are to play each other"):
            Game(environment=environment).check([TASK])
    recorded = Game(environment=Foreign(source="textarena:A-v0", goes_on="record", repeatable=False))
    recorded.played.__dict__["described"] = {"fields": {}, "tools": []}
    with pytest.raises(UserError, match="leave goes_on out"):
        recorded.check([TASK])


def test_the_reward_of_a_conversation_is_that_of_each_player() -> None:
    """Without the terms of length and language it is the verdict of the player that a rollout is of."""
    rollouts, _ = played(["2", "7", "4", "deal"])
    reward = Conversation(of=Verdict(), tokens=0.0, language=0.0)
    scores = asyncio.run(reward.score(Group(key="t", trajectories=rollouts), None))  # type: ignore[arg-type]
    assert [s.value for s in scores] == pytest.approx([0.54, 0.36]) and {s.status for s in scores} == {"ok"}


async def scorer(group: Group) -> Group:
    return replace(group, trajectories=tuple(t.scored(score(verdicts([t])[0][0])) for t in group))


def test_a_tree_of_games_compares_moves_of_one_state_and_not_a_partners() -> None:
    """The policy offers 4 or 6, which the partner takes: .6 and .4; then the partner is the one who has two moves."""
    tree = DialogueTree(of=replace(PLAIN, partner="bob"), searches=1, rollouts=2, fresh=1, merged=0.0)
    assert tree.roles == tree.helpers == {"bob"}
    writers = {"policy": Scripted(["5", "4", "6"]), "bob": Scripted(["deal"] * 3)}
    [root] = asyncio.run(tree.collect_scored(TASK, writers, scorer))
    assert [t.completion for t in root] == ["4", "6"] and root.rewards.tolist() == pytest.approx([0.6, 0.4])
    assert root.trajectories[0].segments[0].text.startswith("Bargain.\nthe first offer is yours")
    writers = {"policy": Scripted(["5", "4", "4"]), "bob": Scripted(["deal", "deal", "9", "9", "9", "9", "9"])}
    one = replace(tree, of=replace(PLAIN, partner="bob", max_turns=2))
    [root] = asyncio.run(one.collect_scored(TASK, writers, scorer))
    assert [t.completion for t in root] == ["4"], "the two answers of the partner are no pair"


def test_a_game_goes_on_from_given_turns() -> None:
    """Their actions are performed again, and nothing is sampled for them."""
    writer = Scripted(["deal"])
    begun = PLAIN.begun(TASK, {"policy": writer}, ("tree", 0, 0), 0)
    whole = asyncio.run(begun.finish_after([turn("2"), turn("7"), turn("4")]))
    assert [t.text for t in whole.turns] == ["2", "7", "4", "deal"] and len(writer.read) == 1
    shown = asyncio.run(PLAIN.begun(TASK, {"policy": Scripted([])}, ("shown",), 0).replay([turn("2"), turn("7")]))
    assert shown.speaker == 0 and shown.views[0][-1].text == "\ndemands 7\n" and not shown.failure


class Local(Visit):
    """An episode of TextArena's interface in this process."""

    async def start(self) -> None:
        argument = {"source": "textarena:Secrets-v0", "arguments": {}, "view": "text", "calls": "hermes"}
        self.served = Served({**argument, "characters": 1000})
        self.served._made = lambda: TextArena(Secrets(), 2, "role:bob")  # type: ignore[method-assign]
        self._first = self._observed(await self.order("reset", seed=0, chance=0, fields={}))

    async def order(self, order: str, **more: Any) -> Any:
        return self.served.perform({"order": order, **more})

    async def close(self) -> None:
        pass


class Stands(Foreign):
    """In the place of the package."""

    def instance(self, task: Task, draw: Any) -> Instance:
        return Local(self, [], task, 0)

    def with_other(self, role: str) -> Environment:
        return Stands(source=self.source, user=f"role:{role}")


def test_a_game_of_textarena_shows_each_player_its_own_secret_once() -> None:
    (alice, bob), [read] = played(["a", "b", "c", "d"], None, Game(environment=Stands(source="textarena:S-v0"), n=1))
    assert not any("secret 1" in s.text for s in alice.segments) and not any("secret 0" in s.text for s in bob.segments)
    assert read[0] == "Bargain.\n(secret 0)\n" and read[1] == "Bargain.\n(secret 1)<a>\n"
    assert read[2] == "Bargain.\n(secret 0)\na\n<a><b>\n" and read[3].endswith("b\n<b><c>\n")
    assert verdicts((alice, bob)) == [(1.0, True), (0.0, False)]


class Seated(Local):
    """An episode of a stand-in of OpenSpiel or PettingZoo in this process."""

    async def start(self) -> None:
        argument = {"source": "open_spiel:stand_in", "arguments": {}, "view": "text", "calls": "hermes"}
        self.served = Served({**argument, "characters": 1000})
        made = {"open_spiel": lambda: OpenSpiel(InTurn(), "role:bob"), "pettingzoo": self._of_pettingzoo}
        self.served._made = made[self._rules.source.partition(":")[0]]  # type: ignore[method-assign, assignment]
        self._first = self._observed(await self.order("reset", seed=0, chance=0, fields={}))

    @staticmethod
    def _of_pettingzoo() -> PettingZoo:
        return PettingZoo(Numbers(), "text", "role:bob")


class Seats(Stands):
    """The same for both libraries."""

    def instance(self, task: Task, draw: Any) -> Instance:
        return Seated(self, [], task, 0)

    def with_other(self, role: str) -> Environment:
        return Seats(source=self.source, user=f"role:{role}")


MOVES = {
    "open_spiel:pennies": ("heads", "tails", "player 0", "player 1", (-1.0, 1.0)),
    "pettingzoo:numbers": ("2", "0", "you are a", "you are b", (2.0, -2.0)),
}
"""Moves of the first and the second player, what each sees, and what each gets."""


@pytest.mark.parametrize("source", MOVES)
def test_both_players_of_other_libraries_have_their_own_results_and_change_places(source: str) -> None:
    first, second, seen, others, (own, other) = MOVES[source]
    rollout = Game(environment=Seats(source=source), n=1)
    (alice, bob), [read] = played([first, second], None, rollout)
    assert verdicts((alice, bob)) == [(own, own >= 1.0), (other, other >= 1.0)]
    assert seen in read[0] and others not in read[0] and others in read[1] and seen not in read[1]
    assert [[s.text for s in t.segments if s.trained] for t in (alice, bob)] == [[first], [second]]
    against = replace(rollout, partner="bob", swapped=True)
    for number, moves, value in ((0, (first, second), own), (1, (second, first), other)):
        writers = {"policy": Scripted([moves[0]]), "bob": Scripted([moves[1]])}
        begun = against.begun(TASK, writers, ("exchange", number), number)
        [learned] = rollouts_of(asyncio.run(begun.finish()), number, both=True)
        assert learned.learners == {"policy"} and verdicts([learned]) == [(value, value >= 1.0)]
        assert [s.text for s in learned.segments if s.trained] == [moves[0]]
        assert (others if number else seen) in learned.segments[0].text


@pytest.mark.slow
def test_negotiation_of_textarena() -> None:
    """Alice offers a sheep for an ore, which Bob accepts: what each gains decides, by the game itself."""
    pytest.importorskip("textarena")
    game = Game(environment=Foreign(source="textarena:SimpleNegotiation-v0"), n=1)
    game.check([TASK])
    rollouts, [read] = played(["[Offer: 1 Sheep -> 1 Ore]", "[Accept]", *["no"] * 20], None, game)
    assert "You are Player 0" in read[0] and "You are Player 1" in read[1] and "1 Sheep" in read[1]
    assert sorted(value for value, _ in verdicts(rollouts)) == [-1.0, 1.0] and verdicts(rollouts)[0][0] == 1.0
    assert all(t.stop_reason == "environment" for t in rollouts)
