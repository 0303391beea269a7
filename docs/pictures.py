"""Draw docs/run.svg, the picture in README.md: the live view of a run as it ended, from its record.

.venv/bin/python docs/pictures.py runs/quickstart-1
"""

import io
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from unittest import mock

from rich.console import Console

from posttrain.errors import UserError
from posttrain.runs.live import LiveView
from posttrain.runs.store import RunStore

PICTURE = Path(__file__).with_name("run.svg")
WIDTH = 100
"""Characters in a line."""
FONT = re.compile(r"\s*@font-face \{.*?\}", re.DOTALL)
"""What rich's SVG would fetch from the network; without it, it takes the reader's own monospaced font."""


class Clock:
    """Stands in for `time.monotonic`: returns the time that the run had, not the time that drawing takes."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        """Seconds since the run began."""
        return self.seconds


def draw(folder: Path) -> str:
    """The SVG of a run that has ended. Raises `UserError` for a folder that holds none."""
    with RunStore.open(folder, reading=True) as store:
        if not store.metrics():
            raise UserError(f"{folder} has no steps to draw")
        clock = Clock()
        with mock.patch("time.monotonic", clock):
            picture = replayed(store, clock).render()
            console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True)
            console.print(picture)
    title = f"posttrain run {store.recipe_tree()['name']}"
    return FONT.sub("", console.export_svg(title=title, unique_id="run"))


def replayed(store: RunStore, clock: Clock) -> LiveView:
    """The view after everything that a run showed, in the order in which it was shown."""
    metrics, evaluations = store.metrics(), store.evaluations()
    view = LiveView(lines=True, console=Console(file=io.StringIO(), width=WIDTH))
    steps: dict[str, int] = {}
    for step in metrics:
        steps[step["stage"]] = step["stage_step"]
    view.start(store.recipe_tree()["name"], len(metrics), steps)
    for event in store.events():
        view.event(event["kind"], event["message"])
    timing = {(entry["step"], entry["stage"], entry["stage_step"]): entry for entry in store.timing()}
    for number, step in enumerate([{}, *metrics]):
        if number:
            took = timing[number, step["stage"], step["stage_step"]]
            clock.seconds += took["seconds_total"]
            view.step(step, took)
        for evaluation in evaluations:
            if evaluation["step"] == number:
                clock.seconds += timing.get((number, evaluation["name"], 0), {}).get("seconds_evaluate", 0.0)
                view.evaluation(evaluation["name"], evaluation)
    return view


def main(arguments: Sequence[str]) -> int:
    """Draw the run that is named."""
    if len(arguments) != 1:
        print(__doc__, file=sys.stderr)
        return 2
    try:
        PICTURE.write_text(draw(Path(arguments[0])), encoding="utf-8")
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    print(f"wrote {PICTURE}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
