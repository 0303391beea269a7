from posttrain.components.tasks.records import LAST, LIKES, NAMES, TOWNS, Records


def test_codes_follow_from_the_prompt_except_for_canaries() -> None:
    tasks = Records(size=400, canaries=20, digits=4).load()
    canaries = [task for task in tasks if "canary" in task.fields]
    assert len(canaries) == 20 and len({task.fields["canary"] for task in canaries}) == 20
    for task in tasks:
        first, town, likes = str(task.prompt).removesuffix(". Code:").split(", ")
        name, last = first.split()
        follows = (NAMES.index(name), LAST.index(last), TOWNS.index(town), LIKES.index(likes.removeprefix("likes ")))
        assert task.demonstrations == (f" {task.answer}",)
        if "canary" not in task.fields:
            assert task.answer == "".join(map(str, follows))
    assert sum(task.answer[0] != str(NAMES.index(str(task.prompt).split()[0])) for task in canaries if task.answer) > 10


def test_copies_of_a_canary_are_the_same() -> None:
    tasks = [task for task in Records(size=200, canaries=5, repeats=3).load() if "canary" in task.fields]
    assert len(tasks) == 15 and len({(task.prompt, task.answer) for task in tasks}) == 5
    assert not any("canary" in task.fields for task in Records(size=50, canaries=0).load())
