"""Errors that are shown to users, each with its exit code, and warnings."""


class PosttrainError(Exception):
    """Base of all errors that are shown as one message, without a traceback."""

    exit_code = 1


class UserError(PosttrainError):
    """Invalid input; the message states what was got, what is allowed, and what to do."""

    exit_code = 2


class TaskFault(UserError):
    """A task that cannot be used; a caller with its source adds the place of the row (`posttrain.errors.places`)."""

    def __init__(self, key: str, message: str) -> None:
        """`message` names the task already."""
        super().__init__(message)
        self.key = key


class RunFailed(PosttrainError):
    """The run cannot continue, for a reason other than the user's input (a full disk, a missing folder)."""

    exit_code = 1


class BrokenModel(RunFailed):
    """A model computes no finite numbers although nothing has trained it yet: its files are wrong."""

    exit_code = 2


class AlarmStop(PosttrainError):
    """An alarm stopped the run: a measured number is out of its bounds."""

    exit_code = 3


class Interrupted(PosttrainError):
    """The run was stopped (Ctrl-C, SIGTERM); it can be resumed from its last checkpoint."""

    exit_code = 130


class NoAnswer(PosttrainError):
    """An endpoint that is up failed to answer one request; other requests may succeed."""


class Overlap(UserWarning):
    """Two methods change the same value of a recipe; commands print it as a note."""
