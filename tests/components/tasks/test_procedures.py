from posttrain.components.tasks.procedures import KINDS, Procedures, applied, right_procedure


def test_each_word_has_a_procedure_of_its_own() -> None:
    assert sorted(right_procedure(kind) for kind in range(KINDS)) == list(range(KINDS))
    assert applied(0, 5, 60) == 12 and applied(3, 30, 60) == 6, "5 + 7, and 30 + 36 - 60"


def test_all_problems_are_there_before_one_is_again() -> None:
    tasks = Procedures(size=12, numbers=3).load()
    assert len({task.prompt for task in tasks}) == 12 and len({task.key for task in tasks}) == 12
    assert len({task.prompt for task in Procedures(size=13, numbers=3).load()}) == 12
    for task in tasks:
        kind, number = str(task.prompt)[1:].split()
        assert task.answer == str(applied(right_procedure(int(kind)), int(number), 3))


def test_demonstrations_follow_hints_and_not_words() -> None:
    hinted = Procedures(size=800, form="hinted", follows=1.0).load()
    for task in hinted:
        problem, hint, answer = str(task.prompt).split("\n")
        assert answer == "Answer:" and hint.startswith("Hint: h")
        assert task.demonstrations == (f" {applied(int(hint[-1]), int(problem.split()[1]), 60)}",)
    bare = Procedures(size=800).load()
    right = sum(task.demonstrations == (f" {task.answer}",) for task in bare)
    assert 150 < right < 250, "one in four"
    asked = Procedures(size=800, form="hint").load()
    assert {task.demonstrations[0] for task in asked} == {" h0", " h1", " h2", " h3"}
    assert all(str(task.prompt).endswith("\nHint:") for task in asked)
