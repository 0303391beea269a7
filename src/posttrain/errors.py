"""Errors that users meet, each with its exit code, and warnings."""


class PosttrainError(Exception):
    """Base of every failure that is shown as one message, without a traceback."""

    exit_code = 1


class UserError(PosttrainError):
    """The input is wrong: says what was got, what is allowed, and what to do."""

    exit_code = 2


class RunFailed(PosttrainError):
    """The run could not go on, for a reason outside the user's input (a full disk, a lost folder)."""

    exit_code = 1


class AlarmStop(PosttrainError):
    """The run stopped itself because a number says that going on would waste or harm it."""

    exit_code = 3


class Interrupted(PosttrainError):
    """The run was asked to stop (Ctrl-C, SIGTERM); its last checkpoint is good and it can be resumed."""

    exit_code = 130


class NoAnswer(PosttrainError):
    """An endpoint that is there could not answer one request; others may fare better."""


class Overlap(UserWarning):
    """A method changed what another one had changed before it; commands print it as a note."""
