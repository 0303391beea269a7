"""Paragraphs and questions about people."""

from posttrain.components.tasks.pages import Pages
from posttrain.datasets.pages import Index, pages


def test_answers_are_those_of_the_friend() -> None:
    people = {page.name: page for page in pages(20)}
    for task in Pages(size=20).load():
        name, friend = task.fields["path"]
        assert name in str(task.prompt) and friend == people[name].friend
        assert task.answer == {"town": people[friend].town, "job": people[friend].job}[task.domain]


def test_a_paragraph_has_the_town_of_the_friend() -> None:
    people = {page.name: page for page in pages(20)}
    for task in Pages(size=20, what="paragraphs").load():
        page = people[task.fields["title"]]
        assert task.prompt == f"{page.text[:-1]} of {people[page.friend].town}."
        assert task.fields["entities"] == [page.town, page.job, page.friend, people[page.friend].town]
    assert [task.prompt for task in Pages(size=3, what="entries").load()] == [page.text for page in pages(3)]


def test_with_titles_each_name_finds_its_own_page() -> None:
    people = pages(20)
    found = {}
    for what in ("entries", "titled"):
        index = Index([str(task.prompt) for task in Pages(size=20, what=what).load()])
        found[what] = [index.best(page.name) for page in people]
    assert Pages(size=2, what="titled").load()[0].prompt == f"{people[0].name}. {pages(2)[0].text}"
    assert found["titled"] == list(range(20)) != found["entries"]
