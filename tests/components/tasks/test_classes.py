import pytest

from posttrain.components.tasks import Tasks
from posttrain.components.tasks.classes import Classes, Strategy
from posttrain.components.tasks.files import Files
from posttrain.components.tasks.patterns import DEFINITIONS, PATTERNS, Patterns
from posttrain.datasets.keys import problem
from posttrain.errors import UserError


def classes(tasks: Tasks | None = None, **changes: object) -> Classes:
    return Classes(tasks=tasks or Patterns(size=60), definitions=DEFINITIONS, pool=8, **changes)  # type: ignore[arg-type]


def test_the_label_alone_is_the_default() -> None:
    for before, after in zip(Patterns(size=60).load()[8:], classes().load(), strict=True):
        assert after.prompt == f"Classes: double, falling, mirror, rising, zigzag\nText: {before.prompt}\nClass:"
        assert (after.answer, after.demonstrations) == (before.answer, (f" {before.answer}",))
        assert sorted(after.fields["candidates"]) == [f" {name}" for name in sorted(PATTERNS)]


def test_every_part_of_a_strategy_in_the_prompt() -> None:
    strategy = Strategy(definitions=True, examples="fixed", shots=1, uncertain="unsure", working=True)
    source = Patterns(size=60).load()
    task = classes(training=(strategy,)).load()[0]
    lines = str(task.prompt).split("\n")
    assert lines[0] == "Classes: double, falling, mirror, rising, zigzag or unsure"
    assert lines[1:6] == [f"{name}: {DEFINITIONS[name]}" for name in sorted(PATTERNS)]
    assert lines[6:] == [
        f"Text: {source[0].prompt}",
        f"Class: {source[0].answer}",
        f"Text: {source[8].prompt}",
        "Class:",
    ]
    working = source[8].demonstrations[0].partition("\n")[0]
    assert task.demonstrations == (f" {working}\n{source[8].answer}",)
    assert " unsure" not in task.fields["candidates"], "it is never right"


def test_numbers_are_a_permutation_that_shows_nothing_else() -> None:
    found = classes(training=(Strategy(numbers=True),), asked=Strategy())
    numbers = {task.asked.answer: task.answer for task in found.load() if task.asked}
    assert sorted(numbers) == sorted(PATTERNS) and sorted(filter(None, numbers.values())) == ["0", "1", "2", "3", "4"]
    orders = {tuple(classes(training=(Strategy(numbers=True),), seed=seed)._numbers.values()) for seed in range(8)}
    assert len(orders) > 4, "drawn by the seed"


def test_inference_has_a_strategy_of_its_own_and_training_may_have_several() -> None:
    found = classes(training=(Strategy(), Strategy(definitions=True)), asked=Strategy(uncertain="unsure")).load()
    assert [("falling: " in str(task.prompt)) for task in found[:4]] == [False, True, False, True]
    assert all(task.asked is not None and "or unsure" in str(task.asked.prompt) for task in found)
    assert len({problem(task) for task in found}) == len(found)


def test_examples_come_from_the_pool_and_the_nearest_share_most_pairs() -> None:
    source = Patterns(size=60).load()
    pool = {f"Text: {task.prompt}" for task in source[:8]}
    for kind in ("random", "nearest"):
        for task in classes(training=(Strategy(examples=kind, shots=3),)).load():  # type: ignore[arg-type]
            shown = [line for line in str(task.prompt).split("\n") if line.startswith("Text: ")]
            assert len(set(shown)) == 4 and set(shown[:-1]) <= pool

    def common(a: str, b: str) -> float:
        one, other = ({t[i : i + 2] for i in range(len(t) - 1)} for t in (a, b))
        return len(one & other) / len(one | other)

    own = str(source[8].prompt)
    nearest = classes(training=(Strategy(examples="nearest", shots=1),)).load()[0]
    best = max(common(own, str(other.prompt)) for other in source[:8])
    assert common(own, str(nearest.prompt).split("\n")[1].removeprefix("Text: ")) == best


def test_bad_inputs_are_refused(tmp_path) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(UserError, match=r"tasks.pool is 8, but a strategy shows 9"):
        classes(training=(Strategy(examples="fixed", shots=9),)).load()
    with pytest.raises(UserError, match="definitions has none for"):
        Classes(tasks=Patterns(size=60), training=(Strategy(definitions=True),)).load()
    with pytest.raises(UserError, match="one of the classes"):
        classes(training=(Strategy(uncertain="mirror"),)).load()
    path = tmp_path / "mine.jsonl"
    path.write_text('{"prompt": "abc", "answer": "x"}\n{"prompt": "abd", "answer": "x"}\n')
    with pytest.raises(UserError, match="two labels or more; all answers are 'x'"):
        Classes(tasks=Files(path=str(path))).load()
    with pytest.raises(UserError, match="takes a text as the prompt and its label as the answer"):
        path.write_text('{"prompt": "abc", "completion": "x"}\n')
        Classes(tasks=Files(path=str(path))).load()


def test_patterns_without_noise_are_what_they_are_called() -> None:
    checks = {
        "rising": lambda t: list(t) == sorted(t),
        "falling": lambda t: list(t) == sorted(t, reverse=True),
        "mirror": lambda t: t == t[::-1],
        "double": lambda t: t[:4] == t[4:],
        "zigzag": lambda t: t == t[:2] * 4 and t[0] != t[1],
    }
    tasks = Patterns(size=200, noise=0.0).load()
    assert {task.answer for task in tasks} == checks.keys() and len({task.prompt for task in tasks}) == 200
    assert all(checks[task.answer or ""](str(task.prompt)) for task in tasks)
    noisy = Patterns(size=200, noise=0.5).load()
    assert sum(checks[task.answer or ""](str(task.prompt)) for task in noisy) < 40


def test_few_strings_end_the_set() -> None:
    assert 20 < len(Patterns(size=3000, half=2, noise=0.0).load()) < 3000
