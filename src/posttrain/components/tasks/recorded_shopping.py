r"""Recorded visits to a shop, in each of which the shopper's next action is to be predicted, with a rationale.

    want red tea for 5
    home: search help menu
    > type_and_submit search red tea
    results: blue tea; red tea; red cup; black jam
    :

The answer is the next action as JSON, ``{"type": "click", "name": "red tea"}``. The shopper follows a script: searches
for what is wanted, clicks it among the results, adds it if it costs no more than is allowed and leaves otherwise,
buys what is in the cart, and leaves at the end. Buttons have 50 names, of which 40 are goods. A task has the first
pages of a visit, up to `pages`.

A demonstration gives the page as its rationale. With the probability `right` its action is that of the answer;
otherwise it ends the visit, so that a model which imitates ends most visits, as base models do.

A file of one's own needs the columns prompt (pages and actions so far) and answer (the action).
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Annotated, Final, Self

from pydantic import Field, NonNegativeInt, PositiveInt, model_validator

from posttrain.component import frozen
from posttrain.components.tasks import Tasks
from posttrain.datasets.describe import describe
from posttrain.datasets.generated import Level, Ordered, check_level, distinct
from posttrain.datasets.keys import keyed
from posttrain.types import Task

COLOURS: Final = ("red", "blue", "black", "white", "green")
GOODS: Final = ("tea", "cup", "jam", "hat", "pen", "box", "map", "bag")
OTHERS: Final = ("search", "help", "menu", "add", "back", "buy", "sort", "cart", "next", "home page")
PAGES: Final = ("home", "results", "item", "cart", "thanks")
WORDS: Final = (
    *("want ", " for ", "\n> ", "; ", ": ", "\n:", "price ", " "),
    *('{"rationale": "', '", "action": {"type": "', '", "name": "', '", "text": "', '"}}'),
    *("click", "type_and_submit", "terminate"),
    *COLOURS,
    *GOODS,
    *OTHERS,
    *PAGES,
)
"""Texts that are one token each for a model of these tasks."""
Count = Annotated[int, Field(ge=1, le=5)]


@dataclass(frozen=True)
class Visit:
    """What is wanted, what it may cost and costs, the buttons of each page that is seen, and whether it is shown."""

    wanted: str
    most: int
    price: int
    """0 where no page that is seen has it."""
    buttons: tuple[tuple[str, ...], ...]
    shown: bool = field(compare=False)
    """Whether the demonstration has the recorded action; visits that differ by that alone are one."""


LEVELS: Final = {1: (1, 2), 2: (1, 3), 3: (2, 4), 4: (3, 5), 5: (4, 5)}
"""By level: pages that are seen."""


@frozen
class RecordedShopping(Tasks):
    """Visits to a shop, cut before an action."""

    size: Annotated[PositiveInt, Field(le=10_000)] = 1000
    """Number of tasks."""
    seed: NonNegativeInt = 0
    """Which tasks are drawn."""
    pages: Annotated[tuple[Count, Count], Ordered] = (1, 5)
    """Fewest and most pages that are seen before the action."""
    level: Level = None
    """Difficulty, which sets `pages`; None leaves that as it is."""
    right: Annotated[float, Field(ge=0.0, le=1.0)] = 0.3
    """Share of demonstrations that have the recorded action."""

    @model_validator(mode="after")
    def check_level(self) -> Self:
        """Refuse a level beside `pages`."""
        check_level(self.level, "pages", changed=self.pages != (1, 5))
        return self

    def load(self) -> Sequence[Task]:
        """The tasks, in the order in which they are drawn."""
        if self.level is not None:
            return replace(self, level=None, pages=LEVELS[self.level]).load()
        return keyed(map(self._task, distinct(self._draw, self.size, f"recorded_shopping:{self.pages}:{self.seed}")))

    def describe(self) -> str:
        """Pages, number and an example."""
        if self.level is not None:
            return replace(self, level=None, pages=LEVELS[self.level]).describe()
        return describe(f"visits to a shop, {self.pages[0]} to {self.pages[1]} pages (seed {self.seed})", self.load())

    def _draw(self, rng: Random) -> Visit:
        wanted = f"{rng.choice(COLOURS)} {rng.choice(GOODS)}"
        seen = rng.randint(*self.pages)
        most = rng.randint(1, 9)
        # Who sees the cart has added, so that the price was right.
        price = rng.randint(1, most) if seen > 3 else rng.randint(1, 9)
        goods = [wanted]
        while len(goods) < 4:
            other = f"{rng.choice(COLOURS)} {rng.choice(GOODS)}"
            goods += [other] if other not in goods else []
        needed = (("search",), tuple(goods), ("add", "back"), ("buy",), ())
        buttons = []
        for page, own in enumerate(needed):
            more = [] if page == 1 else rng.sample([name for name in OTHERS if name not in own], 2)
            shown = [*own, *more]
            rng.shuffle(shown)
            buttons.append(tuple(shown))
        return Visit(wanted, most, price if seen > 2 else 0, tuple(buttons[:seen]), rng.random() < self.right)

    def _task(self, visit: Visit) -> Task:
        wanted, most, price, buttons = visit.wanted, visit.most, visit.price, visit.buttons
        seen = len(buttons)
        lines = [f"want {wanted} for {most}"]
        for page, names in enumerate(buttons):
            if page:
                lines.append("> " + " ".join(script(page - 1, wanted, True).values()))
            cost = f"price {price}; " if PAGES[page] == "item" else ""
            lines.append(f"{PAGES[page]}: {cost}{'; '.join(names)}")
        action = script(seen - 1, wanted, price <= most)
        text = json.dumps({"rationale": PAGES[seen - 1], "action": action if visit.shown else {"type": "terminate"}})
        return Task(
            key="",
            prompt="\n".join(lines) + "\n:",
            answer=json.dumps(action),
            domain=action["type"],
            demonstrations=(text,),
            fields={"pages": [list(names) for names in buttons], "target": action},
        )


def script(page: int, wanted: str, affordable: bool) -> Mapping[str, str]:
    """The shopper's action on a page, counted from 0."""
    if page == 0:
        return {"type": "type_and_submit", "name": "search", "text": wanted}
    names = {1: wanted, 2: "add" if affordable else "", 3: "buy"}
    return {"type": "click", "name": names[page]} if names.get(page) else {"type": "terminate"}
