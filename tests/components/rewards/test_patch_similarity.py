"""Patches are rewarded by their similarity to the true one, and cheats have exactly what the sheet states."""

import difflib

import pytest

from posttrain.components.rewards.patch_similarity import PatchSimilarity
from posttrain.components.tasks.repairs import Repairs
from posttrain.errors import UserError
from posttrain.types import Task
from tests.components.rewards.judging import attempt, judge, score_all
from tests.components.rewards.programs import tier_for
from tests.grading.test_edit_blocks import block, completion

LINES = [f"def f{name}(x):\n    return x + {number}" for number, name in enumerate("abcdefghijkl")]
FILE = "\n\n".join(LINES) + "\n"
WRONG, RIGHT = "    return x + 5", "    return x * 5"
TASK = Task(
    key="task",
    prompt="Use * in ff.",
    fields={
        "files": {"a.py": FILE, "b.py": "y = 1\n"},
        "oracle": {"a.py": FILE.replace(WRONG, RIGHT)},
        "calls": ["ff(2)", "ff(5)", "fa(3)"],
    },
)
GOLD = completion(block("a.py", WRONG, RIGHT))


def _ratio(file: str) -> float:
    """The similarity, written a second time: by difflib's own functions from two texts."""
    texts = [FILE.replace(WRONG, RIGHT), file]
    rows = [list(difflib.unified_diff(FILE.splitlines(), text.splitlines(), lineterm=""))[2:] for text in texts]
    wanted, own = ("\n".join(lines) for lines in rows)
    return difflib.SequenceMatcher(None, own, wanted, autojunk=False).ratio()


CHEATS = {
    "the true patch": ([block("a.py", WRONG, RIGHT)], 1.0),
    "the right line with nonsense": ([block("a.py", WRONG, "    qwertz")], _ratio(FILE.replace(WRONG, "    qwertz"))),
    "a comment": ([block("a.py", WRONG, WRONG + "  #")], _ratio(FILE.replace(WRONG, WRONG + "  #"))),
    "another function": (
        [block("a.py", "    return x + 8", "    return x * 8")],
        _ratio(FILE.replace("x + 8", "x * 8")),
    ),
    "edits that undo each other": ([block("a.py", WRONG, "    q"), block("a.py", "    q", WRONG)], 0.0),
    "one more file": ([block("a.py", WRONG, RIGHT), block("b.py", "y = 1", "y = 2")], 0.5),
    "a path outside": ([block("a.py", WRONG, RIGHT), block("../../etc/passwd", "", "x")], 0.5),
    "two more files": (
        [block("a.py", WRONG, RIGHT), block("b.py", "y", "z"), block("c.py", "", "z")],
        1 / 3,
    ),
    "an edit that changes nothing": ([block("a.py", WRONG, WRONG)], -1.0),
    "a search that is not there": ([block("a.py", "x + 5", "x * 5")], -1.0),
    "no block": ([], -1.0),
}


@pytest.mark.parametrize("name", CHEATS)
def test_exact_values(name: str) -> None:
    blocks, value = CHEATS[name]
    score = judge(PatchSimilarity(), completion(*blocks), TASK)
    assert score.value == pytest.approx(value, abs=1e-12)
    assert score.status == ("ok" if name == "the true patch" else "wrong")
    exact = judge(PatchSimilarity(measure="exact"), completion(*blocks), TASK).value
    assert exact == (value if value in (1.0, -1.0) else 0.0)


def test_overlap_is_no_measure_of_correctness() -> None:
    """Nonsense in the right line has .89 or more, a comment .96; a wrong edit far away more than one of the next."""
    values = [CHEATS[name][1] for name in ("the right line with nonsense", "a comment")]
    assert values[0] > 0.88 and values[1] > 0.95


@pytest.mark.slow
def test_results_decide_what_is_correct() -> None:
    reward = PatchSimilarity(execution=True, weakest=tier_for())
    reward.prepare()
    other = completion(block("a.py", WRONG, "    return 5 * x"))
    texts = [GOLD, other, completion(block("a.py", WRONG, WRONG + "  #")), completion(block("a.py", WRONG, "q("))]
    scores = score_all(reward, *(attempt(text, TASK) for text in texts))
    assert [score.status for score in scores] == ["ok", "ok", "wrong", "wrong"]
    assert [score.parts["results"].value for score in scores] == [1, 1, 0, 0] and scores[1].value < 1


@pytest.mark.slow
def test_hostile_texts_end_in_time() -> None:
    reward = PatchSimilarity()
    long = completion(block("a.py", WRONG, "\n".join("ab" * 40 for _ in range(300))))
    score = judge(reward, long, TASK)
    assert (score.value, score.status) == (0.0, "wrong") and "not compared" in score.explanation
    for text in (completion(block("a.py", WRONG, "ab" * 1900)), completion(block("a.py", "", "x" * 2000)), "\0\ud800"):
        assert judge(reward, text, TASK).status == "wrong"


def test_tasks_that_cannot_be_scored_are_refused() -> None:
    files, oracle = TASK.fields["files"], TASK.fields["oracle"]
    for fields in (
        {},
        {"files": files},
        {"files": files, "oracle": {"a.py": FILE}},
        {"files": files, "oracle": {"../a.py": ""}},
        {"files": files, "oracle": {"a.py": "x" * 9000}},
    ):
        bad = Task(key="bad", prompt="?", fields=fields)
        with pytest.raises(UserError, match="bad"):
            PatchSimilarity().check([bad])
        assert judge(PatchSimilarity(), GOLD, bad).status == "error"
    with pytest.raises(UserError, match="calls"):
        PatchSimilarity(execution=True).check([Task(key="t", prompt="?", fields={"files": files, "oracle": oracle})])


@pytest.mark.parametrize("level", range(1, 6))
def test_generated_patches_have_all(level: int) -> None:
    tasks = Repairs(size=10, level=level).load()
    reward = PatchSimilarity()
    reward.check(tasks)
    scores = score_all(reward, *(attempt(task.demonstrations[0], task) for task in tasks))
    assert [score.value for score in scores] == [1.0] * 10
