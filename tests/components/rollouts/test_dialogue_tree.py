"""Trees of conversations."""

import asyncio
from dataclasses import replace

import numpy as np

from posttrain.components.rollouts.dialogue_tree import DialogueTree, Node, apart
from posttrain.datasets.distances import edit_distance
from posttrain.types import Group, Score, Segment
from tests.builders import ScriptedSampler, score
from tests.components.rollouts.test_dialogue import PLAIN, TASK, Scripted


def turn(text: str) -> Segment:
    return Segment(actor="policy", token_ids=np.array([1, 2]), text=text, trained=True)


def test_edit_distances_by_hand() -> None:
    assert edit_distance("kitten", "sitting") == 3 and edit_distance("", "abc") == 3 and edit_distance("a", "a") == 0
    assert apart("kitten", "sitting") == 3 / 7 and apart("", "") == 0.0


def test_values_are_means_over_the_conversations_through_a_turn() -> None:
    tree, root = DialogueTree(), Node()
    for texts, reward in ((("hello there", "x"), 1.0), (("hello there", "yyyy"), 0.0), (("bye", "x"), 0.5)):
        tree._add(root, [turn(text) for text in texts], score(reward))
    assert root.value == 0.5 and [child.value for child in root.children] == [0.5, 0.5]
    assert [child.value for child in root.children[0].children] == [1.0, 0.0]


def test_a_turn_that_is_nearly_its_sibling_is_that_sibling() -> None:
    tree, root = DialogueTree(), Node()
    for text in ("0123456789", "012345678x", "01234567xy"):  # 1 and 2 of 11 characters
        tree._add(root, [turn(text)], score(1.0))
    assert [child.text for child in root.children] == ["0123456789", "01234567xy"]


def test_a_node_is_expanded_once_and_so_is_what_is_near_it() -> None:
    tree, root, sampler = DialogueTree(), Node(), ScriptedSampler("k")
    assert tree._chosen(root, sampler) is root, "the first one"
    root.expanded = True
    for first in ("aaaaaaaa", "aaaaaaab", "zzzzzzzz"):
        for second in ("p", "q"):
            tree._add(root, [turn(first + first), turn(second), turn("end")], score(1.0))
    assert [child.text[0] for child in root.children] == ["a", "a", "z"]
    found = tree._chosen(root, sampler)
    assert found in root.children
    root.children[0].expanded = True
    assert tree._chosen(root, sampler) is root.children[2], "the second is within a quarter of the first"
    root.children[2].expanded = True
    assert tree._chosen(root, sampler) is None


def test_groups_are_the_turns_of_one_state_with_what_the_speaker_read() -> None:
    async def scorer(group: Group) -> Group:
        texts = [s.text for t in group for s in t.segments if s.trained]
        return replace(group, trajectories=tuple(t.scored(score(float("good" in texts[0]))) for t in group))

    tree = DialogueTree(of=PLAIN, searches=1, rollouts=2, fresh=1)
    texts = ["f", "<f>", "<f>", "good", "<ac>", "<ac>", "bad", "<bd>", "<bd>"]
    groups = asyncio.run(tree.collect_scored(TASK, {"policy": Scripted(texts)}, scorer))
    [root] = groups
    assert [t.segments[0].text for t in root] == ["A:a.", "A:a."] and [t.completion for t in root] == ["good", "bad"]
    assert root.rewards.tolist() == [1.0, 0.0]
    scores: list[Score] = [t.score for t in root if t.score is not None]
    assert [s.explanation for s in scores] == ["mean of 1 conversations"] * 2
