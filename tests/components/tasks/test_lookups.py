from posttrain.components.tasks.lookups import Lookups


def test_answers_calls_and_facts_agree() -> None:
    for task in Lookups(size=200, maths=0.3).load():
        asked = task.prompt.partition(": ")[2].removesuffix("?\n").split(" plus ")  # type: ignore[union-attr]
        number = task.fields["facts"].get(asked[0]) if task.domain == "questions" else int(asked[0])
        added = int(asked[1]) if len(asked) > 1 else 0
        assert task.answer == str(number + added)
        (shown,) = task.demonstrations
        assert shown.endswith(rf"<answer>\boxed{{{task.answer}}}</answer>")
        assert (f"<search>{asked[0]}</search>" in shown) == (task.domain == "questions")
        assert (f"<python>{number}+{added}</python>" in shown) == bool(added)


def test_shares() -> None:
    assert {task.domain for task in Lookups(size=50).load()} == {"questions"}
    assert {task.domain for task in Lookups(size=50, maths=1.0).load()} == {"maths"}
    assert all("plus" in str(task.prompt) for task in Lookups(size=50, single=0.0).load())
