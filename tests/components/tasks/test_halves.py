"""Questions of which each of two agents has a half."""

import re

from posttrain.components.tasks.halves import Halves


def test_neither_context_has_the_answer() -> None:
    for task in Halves(size=20).load():
        alice, bob = task.fields["contexts"]
        assert task.answer == alice[-3] + bob[-3] and task.answer not in task.prompt
        assert len(re.findall(r"has (\w)", alice + bob)) == 2


def test_shown_conversations_are_seen_from_both_sides() -> None:
    tasks = Halves(size=200, which="shown").load()
    guesses = 0
    for alice, bob in zip(tasks[::3], tasks[1::3], strict=True):
        [seen_a], [seen_b] = alice.episodes, bob.episodes
        assert seen_a[0].actor == "policy" and seen_b[0].actor == "environment" and seen_a[0].text == seen_b[0].text
        assert seen_a[-1].actor == seen_b[-1].actor == "policy"
        guesses += seen_a[0].text.startswith(" <")
    assert 0.2 < guesses / 200 < 0.4
