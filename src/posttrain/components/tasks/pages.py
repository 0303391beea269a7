r"""Paragraphs about made-up people, or questions about the friend of one, to be answered with a search.

    balo lives in kesh, works as baker, is a friend of mina of ulm.      paragraphs: entities kesh, baker, mina, ulm
    Q: where does the friend of balo live?\n   ->  ulm                   questions, two pages to read
    Q: what does the friend of balo do?\n      ->  judge

The field ``path`` has the pages to search for, one after the other; the search is the environment ``archive`` over
``entries``, the pages themselves, or ``titled``, the same after their titles. A paragraph needs the page of its friend
too. A name stands once in its own page and once in that of each person whose friend it is, so that a search for it
finds the first of these in ``entries``; with titles it finds its own.

Source: the smallest experiment of MaskSearch, arXiv:2505.20285.
"""

from collections.abc import Sequence
from typing import Annotated, Final, Literal

from pydantic import Field

from posttrain.component import frozen
from posttrain.components.tasks import Tasks
from posttrain.datasets.describe import describe
from posttrain.datasets.keys import keyed
from posttrain.datasets.pages import MOST, Page, pages
from posttrain.types import Task

QUESTIONS: Final = {"town": "where does the friend of {name} live", "job": "what does the friend of {name} do"}


@frozen
class Pages(Tasks):
    """Tasks about people and their friends."""

    size: Annotated[int, Field(ge=2, le=MOST)] = 60
    """Number of people."""
    what: Literal["entries", "titled", "paragraphs", "questions"] = "questions"
    """The pages, the pages after their titles, a paragraph for each person, or two questions for each."""

    def load(self) -> Sequence[Task]:
        """The tasks, in the order of the people."""
        people = pages(self.size)
        by_name = {page.name: page for page in people}
        return keyed(task for page in people for task in self._tasks(page, by_name[page.friend]))

    def describe(self) -> str:
        """Number and an example."""
        return describe(f"{self.what} about {self.size} people", self.load())

    def _tasks(self, page: Page, friend: Page) -> list[Task]:
        path = [page.name, friend.name]
        if self.what in ("entries", "titled"):
            title = f"{page.name}. " if self.what == "titled" else ""
            return [Task(key="", prompt=title + page.text, fields={"title": page.name})]
        if self.what == "paragraphs":
            text = f"{page.text.removesuffix('.')} of {friend.town}."
            entities = [page.town, page.job, friend.name, friend.town]
            return [Task(key="", prompt=text, fields={"title": page.name, "entities": entities, "path": path})]
        return [
            Task(
                key="",
                prompt=f"Q: {text.format(name=page.name)}?\n",
                answer=getattr(friend, name),
                domain=name,
                fields={"path": path},
            )
            for name, text in QUESTIONS.items()
        ]
