"""Two agents with private contexts."""

import asyncio
from dataclasses import replace

import numpy as np

from posttrain.components.rollouts import Exchange
from posttrain.components.rollouts._exchange import Form, rollouts_of
from posttrain.components.rollouts.dialogue import Dialogue
from posttrain.engines import Sampling
from posttrain.types import Completion, Task, Trajectory
from tests.components.rollouts.test_chain import Agent

TASK = Task(key="t", prompt="q", answer="ac", fields={"contexts": ["A:a.", "B:c."]})
FORM = Form(view="{context}", heard="[{text}]", answer=r"<(\w+)>")
PLAIN = Dialogue(n=1, form=FORM)


class Scripted(Agent):
    """Writes the next text of one list for either agent."""

    def __init__(self, texts: list[str]) -> None:
        super().__init__(texts)
        self.left = list(texts)

    async def sample(
        self, token_ids: np.ndarray, n: int, sampling: Sampling, vectors: np.ndarray | None = None
    ) -> list[Completion]:
        self.texts = [self.left.pop(0)]
        return await super().sample(token_ids, n, sampling)


def talked(texts: list[str], rollout: Dialogue = PLAIN, task: Task = TASK) -> tuple[tuple[Trajectory, ...], Scripted]:
    writer = Scripted(texts)
    [group] = asyncio.run(rollout.collect(task, {"policy": writer}))
    return group.trajectories, writer


def test_each_reads_its_own_context_and_what_the_other_wrote() -> None:
    (alice, bob), writer = talked(["a", "<ac>", "<ac>"])
    assert writer.read == ["A:a.", "B:c.[a]", "A:a.a[<ac>]"]
    assert not any("c." in s.text for s in alice.segments) and not any("a." in s.text for s in bob.segments)
    assert [s.actor for s in alice.segments] == ["prompt", "policy", "environment", "policy"]
    assert [s.actor for s in bob.segments] == ["prompt", "policy"]
    assert [s.turn for s in alice.segments] == [0, 0, 2, 2] and [s.turn for s in bob.segments] == [1, 1]
    fact = alice.fact(Exchange)
    assert (
        fact is not None and fact == bob.fact(Exchange) and fact.agreed == "ac" and fact.turns == ("a", "<ac>", "<ac>")
    )
    assert fact.tokens == sum(t.num_trained for t in (alice, bob)) and {alice.sample, bob.sample} == {0, 1}


def test_one_answer_is_not_agreed_and_neither_is_an_empty_one() -> None:
    (alice, _), _ = talked(["<a>", "<b>"], replace(PLAIN, max_turns=2))
    fact = alice.fact(Exchange)
    assert fact is not None and fact.agreed == "" and alice.stop_reason == "length"
    (alice, _), _ = talked(["<>", "<>"], replace(PLAIN, max_turns=2, form=replace(FORM, answer="<(.*?)>")))
    fact = alice.fact(Exchange)
    assert fact is not None and fact.agreed == ""


def test_a_single_turn_agrees_on_nothing() -> None:
    [alice], _ = talked(["<a>"], replace(PLAIN, max_turns=1))
    fact = alice.fact(Exchange)
    assert fact is not None and fact.agreed == "" and fact.turns == ("<a>",) and alice.stop_reason == "length"


def test_a_conversation_draws_a_format_and_a_task_without_contexts_is_read_by_both() -> None:
    plain = replace(TASK, fields={})
    view = "{agent} to {other}: {question}{context}{form}"
    _, writer = talked(["<a>", "<a>"], replace(PLAIN, form=replace(FORM, view=view, formats=(" in short",))), plain)
    assert writer.read[0] == "Alice to Bob: q in short" and writer.read[1].startswith("Bob to Alice: q in short")


def test_a_partner_writes_the_turns_of_the_second_agent_and_is_not_learned_from() -> None:
    mine, theirs = Scripted(["a", "<ac>"]), Scripted(["<ac>"])
    rollout = replace(PLAIN, partner="bob")
    assert rollout.roles == rollout.helpers == {"bob"} and PLAIN.roles == PLAIN.helpers == frozenset()
    [group] = asyncio.run(rollout.collect(TASK, {"policy": mine, "bob": theirs}))
    [alice] = group.trajectories
    assert mine.read == ["A:a.", "A:a.a[<ac>]"][: len(mine.read)] and theirs.read == ["B:c.[a]"]
    assert [(s.actor, s.trained) for s in alice.segments if s.actor == "policy"] == [("policy", True)] * len(mine.read)


def test_a_partner_changes_places_and_each_keeps_to_its_own_context() -> None:
    """In the second conversation the partner is Alice; the model reads Bob's context, in ids of its own."""
    mine, theirs = Scripted(["a", "<x>", "d"]), Scripted(["<y>", "b", "<z>"])
    rollout = replace(PLAIN, n=2, partner="bob", swapped=True, max_turns=3)

    async def both() -> list[Trajectory]:
        found = []
        for number in range(2):
            begun = rollout.begun(TASK, {"policy": mine, "bob": theirs}, ("exchange", number), number)
            found += rollouts_of(await begun.finish(), number, both=rollout.rollouts == "both")
        return found

    first, second = asyncio.run(both())
    assert [s.text for s in first.segments if s.actor == "policy"] == ["a", "<x>"]
    assert [s.text for s in second.segments if s.actor == "policy"] == ["d"]
    assert (first.sample, second.sample) == (0, 3)
    assert mine.read == ["A:a.", "A:a.a[<y>]", "B:c.[b]"] and theirs.read == ["B:c.[a]", "A:a.", "A:a.b[d]"]
    assert first.learners == second.learners == frozenset({"policy"})
    [group] = asyncio.run(rollout.collect(TASK, {"policy": Scripted(["a"] * 4), "bob": Scripted(["b"] * 4)}))
    assert [t.sample for t in group.trajectories] == [0, 3]


def test_held_out_conversations_are_seen_by_the_first_agent() -> None:
    own = replace(PLAIN, form=replace(FORM, formats=("x",))).held_out(2, Sampling(temperature=0.0))
    rollouts, _ = talked(["<a>", "<a>"] * 2, own)
    assert [t.sample for t in rollouts] == [0, 2] and own.form.formats == () and own.sampling.temperature == 0.0
