"""The command line: one file a verb. A file here without a leading underscore is a verb, its docstring is the verb's
help, and its `command` is what runs. Nothing but click is imported until a verb is chosen.

Exit codes: 0 done, 1 failed, 2 the input is wrong, 3 stopped by an alarm, 130 interrupted, 141 the reader went away.

With ``--json`` standard output gets exactly one JSON value: the answer, or ``{"error": ..., "exit_code": ...}``.
Whatever else is printed on the way, by this package or by anybody's code, goes to standard error.
"""

from posttrain.cli._main import group, main

__all__ = ["group", "main"]

# No more here: importing a verb puts its name into this module, and `list` and `eval` are verbs.
