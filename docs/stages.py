"""Write docs/stages.md: what each stage of a recipe of several stages gained and forgot, by kind of task.

.venv/bin/python docs/stages.py record RUN...   keep what the page shows of a recipe's runs, then write it
.venv/bin/python docs/stages.py                 write the page, if it is out of date
.venv/bin/python docs/stages.py --check         say whether it is out of date, and exit with 1 if it is
"""

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pages import table, write_or_check

from posttrain.recipes.catalogue import find_entry
from posttrain.runs.by_stage import stages_of
from posttrain.runs.store import RunStore

DOCS = Path(__file__).resolve().parent
PARTS, PAGE = DOCS / "measured" / "stages", DOCS / "stages.md"
OPENING = """<!-- Written by docs/stages.py. -->

# What each stage gained and forgot

A recipe of several stages can lose in one what it gained in another. A run answers all of its held-out tasks greedily
before the first stage and after each, so that a stage's change on a kind of task is paired: the same tasks, before and
after it, with the number gained and lost. Kinds that no stage trains on show what is forgotten.

```text
posttrain run tulu3 --sets sums=a.jsonl,words=b.jsonl
posttrain stages runs/tulu3-1
```

Below are runs of the bundled model on two cores. A cell has the accuracy after the stage, and the tasks that were
gained and lost by it; a change in bold has a 95 % interval without 0. With one run the unit is the task, with several
the run."""


def record(folders: Sequence[Path]) -> tuple[str, dict[str, Any]]:
    """The name of the recipe of some runs, and what the page shows of them."""
    with RunStore.open(folders[0], reading=True) as store:
        recipe = store.recipe_tree()
    found = stages_of(folders)
    return recipe["name"], {"seeds": len(folders), "stages": found["stages"]}


def page(recipes: Mapping[str, Mapping[str, Any]]) -> str:
    """The whole page."""
    return "\n".join([OPENING, "", *(line for name, found in recipes.items() for line in section(name, found))])


def section(name: str, found: Mapping[str, Any]) -> Iterator[str]:
    """The table of a recipe."""
    entry = find_entry(name)
    runs = "one run" if found["seeds"] == 1 else f"{found['seeds']} runs"
    yield f"## {name}"
    yield ""
    yield f"{entry.summary if entry else ''} ({runs})"
    yield ""
    stages = found["stages"]
    sets = list(stages[0]["sets"])
    columns = ["kind", "tasks", *(stage["name"] for stage in stages)]
    rows = [
        [kind, f"{stages[0]['sets'][kind]['tasks']:g}", *(cell(stage["sets"][kind]) for stage in stages)]
        for kind in sets
    ]
    yield from table(columns, rows)


def cell(found: Mapping[str, Any]) -> str:
    """Accuracy in percent, and tasks that were gained and lost."""
    accuracy, change = f"{100 * found['accuracy']:.1f} %", found.get("change")
    if change is None:
        return accuracy
    moved = f"+{change['gained']:.3g} -{change['lost']:.3g}"
    low, high = change["interval"]
    return f"{accuracy} (**{moved}**)" if low > 0 or high < 0 else f"{accuracy} ({moved})"


def recorded() -> dict[str, Any]:
    """What was recorded, by recipe."""
    return {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(PARTS.glob("*.json"))}


def main(arguments: Sequence[str]) -> int:
    """Record runs, or write or check the page."""
    if arguments and arguments[0] == "record":
        PARTS.mkdir(parents=True, exist_ok=True)
        name, found = record([Path(folder) for folder in arguments[1:]])
        text = json.dumps(found, indent=1, ensure_ascii=False)
        (PARTS / f"{name}.json").write_text(text + "\n", encoding="utf-8")
        arguments = []
    return write_or_check(arguments, __doc__, PAGE, lambda: page(recorded()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
