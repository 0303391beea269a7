import re
from collections import Counter

from posttrain.components.tasks.arithmetic import Arithmetic
from posttrain.components.tasks.stated_confidence import StatedConfidence

ENDED = re.compile(r"(?s)(.*)\n<confidence>(.*)</confidence>")


def test_every_demonstration_gets_a_confidence_and_nothing_else_changes() -> None:
    plain = Arithmetic(size=600).load()
    stated = StatedConfidence(tasks=Arithmetic(size=600)).load()
    seen: Counter[str] = Counter()
    for before, after in zip(plain, stated, strict=True):
        found = ENDED.fullmatch(after.demonstrations[0])
        assert found and found[1] == before.demonstrations[0]
        assert (after.key, after.prompt, after.answer) == (before.key, before.prompt, before.answer)
        seen[found[2]] += 1
    assert sorted(seen, key=float) == [f"{i / 10:g}" for i in range(11)]
    assert min(seen.values()) > 25, "every level is about as likely"


def test_levels_seed_and_tag() -> None:
    two = StatedConfidence(tasks=Arithmetic(size=50), levels=2, tag="p")
    assert {task.demonstrations[0].rpartition("\n")[2] for task in two.load()} == {"<p>0</p>", "<p>1</p>"}
    other = StatedConfidence(tasks=Arithmetic(size=50), levels=2, tag="p", seed=1)
    assert [t.demonstrations for t in two.load()] != [t.demonstrations for t in other.load()]
    assert "2 levels" in two.describe()


def test_tasks_without_demonstrations_stay_without() -> None:
    [task] = StatedConfidence(tasks=Arithmetic(size=1, demonstrate=False)).load()
    assert task.demonstrations == ()
