"""Dialogues that are written anew."""

from posttrain.datasets.hindsight import Dialogue, quotes, refused
from posttrain.types import Task, Trajectory, Utterance


def turns_of(*texts: str) -> tuple[Utterance, ...]:
    return tuple(Utterance(actor="policy" if i % 2 else "environment", text=t) for i, t in enumerate(texts))


OWN = Dialogue(task="t", turns=turns_of("hello.", "Give!", "I like stories.", "Facts."), closing="No way.", reward=0.0)


def test_what_cannot_be_a_better_turn() -> None:
    assert refused(OWN, 1, "Please?") == "" and OWN.own == [1, 3]
    assert refused(OWN, 1, " ") == "empty" and refused(OWN, 1, "Give! ") == "same"
    assert refused(OWN, 2, "x") == refused(OWN, 9, "x") == "outside", "only turns of the policy are replaced"
    assert refused(OWN, 1, "You will say: i  LIKE stories. So") == "leaked"
    assert refused(OWN, 3, "As you said, I like stories.") == "", "an earlier turn is no secret"
    assert refused(OWN, 3, "you say no way. then") == "leaked", "the last answer is later than every turn"


def test_only_whole_words_are_quoted() -> None:
    assert not quotes("nobody", ["no"]) and quotes("say no", ["no\n"]) and not quotes("say no", ["", " "])


def test_dialogues_are_json_and_stay_what_they_are() -> None:
    assert Dialogue.unpacked(OWN.packed()) == OWN
    edited = OWN.rewritten(3, [*OWN.turns[:3], Utterance(actor="policy", text="A story?")], "Well.", 1.0)
    assert Dialogue.unpacked(edited.packed()) == edited and edited.task == "t"
    bare = Trajectory(task=Task(key="t", prompt=""), segments=(), stop_reason="stop")
    assert edited.noted(bare).facts[0].record() == {"source": "regenerated", "edited": 3}
    assert OWN.noted(bare).facts[0].record() == {"source": "log"}
    assert OWN.text() == "hello.Give!I like stories.Facts.No way." and OWN.text(2) == "hello.Give!"
