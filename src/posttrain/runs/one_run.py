"""One run of a comparison, in a process of its own: ``python -m posttrain.runs.one_run PLAN.json ROOT``, or ``RUN``."""

import json
import sys
from pathlib import Path

from posttrain.errors import PosttrainError
from posttrain.recipes.overrides import from_tree
from posttrain.runs.garbage import rarely_looked_for
from posttrain.runs.launch import resume, start
from posttrain.runs.live import LiveView


def main(arguments: list[str]) -> int:
    """Start the planned run, or continue the one that was begun; returns the exit code."""
    view = LiveView(lines=True, json=True)
    try:
        with rarely_looked_for():
            if len(arguments) == 1:
                resume(Path(arguments[0]), view)
            else:
                plan, root = arguments
                start(from_tree(json.loads(Path(plan).read_text())), Path(root), view)
    except PosttrainError as problem:
        print(f"error: {problem}", file=sys.stderr)
        return problem.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
