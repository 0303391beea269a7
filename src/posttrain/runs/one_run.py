"""One run of a comparison, in a separate process: ``python -m posttrain.runs.one_run PLAN.json ROOT``, or ``RUN``.

``--rehearse PLAN.json ROOT`` does one step of each stage.
"""

import json
import sys
from pathlib import Path

from posttrain.errors import PosttrainError
from posttrain.recipes.overrides import from_tree
from posttrain.runs.garbage import rarely_collected
from posttrain.runs.launch import resume, start
from posttrain.runs.live import LiveView


def main(arguments: list[str]) -> int:
    """Start the planned run, or continue the one that was begun; returns the exit code."""
    view = LiveView(lines=True, json=True)
    try:
        with rarely_collected():
            if len(arguments) == 1:
                resume(Path(arguments[0]), view)
            else:
                *rehearse, plan, root = arguments
                recipe = from_tree(json.loads(Path(plan).read_text()))
                start(recipe, Path(root), view, most_steps=1 if rehearse else None)
    except PosttrainError as problem:
        print(f"error: {problem}", file=sys.stderr)
        return problem.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
