"""The command line: one file per verb. A file here without a leading underscore is a verb, its docstring is the verb's
help, and its `command` is what runs. Only click is imported until a verb is chosen.

Exit codes: 0 done, 1 failed, 2 the input is wrong, 3 stopped by an alarm, 130 interrupted, 141 closed pipe.

With ``--json`` standard output gets exactly one JSON value: the answer, or ``{"error": ..., "exit_code": ...}``. All
other output, of this package and of user code, goes to standard error.
"""

from posttrain.cli._main import group, main

__all__ = ["group", "main"]

# Keep this module small: importing a verb puts its name here, and `list` and `eval` are verbs.
