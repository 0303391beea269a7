"""Which process runs which file of tests."""

from typing import Any

from xdist.scheduler import LoadFileScheduling


class Files(LoadFileScheduling):
    """One file after the other to whichever process has little left, as `--dist loadfile` does.

    What has ended is forgotten, and the place of a test is looked up: xdist goes through all tests that a process has
    had after each one of them, and through the whole list for each that it assigns, so that its work is quadratic.
    """

    def __init__(self, config: Any, log: Any = None) -> None:
        super().__init__(config, log)
        self._places: dict[Any, dict[str, int]] = {}

    def mark_test_complete(self, node: Any, item_index: int, duration: float = 0) -> None:
        """Forget a test that has ended, and its file with the last one; give the process more where it has little."""
        test = self.registered_collections[node][item_index]
        file = self._split_scope(test)
        left = self.assigned_work[node][file]
        del left[test]
        if not left:
            del self.assigned_work[node][file]
        self._reschedule(node)

    def _assign_work_unit(self, node: Any) -> None:
        """Give the next file to a process."""
        file, tests = self.workqueue.popitem(last=False)
        self.assigned_work.setdefault(node, {})[file] = tests
        if node not in self._places:
            self._places[node] = {test: place for place, test in enumerate(self.registered_collections[node])}
        node.send_runtest_some([self._places[node][test] for test in tests])
