"""A local web page on runs: rollouts token by token, and the history of every task.

`library` finds runs, `questions` asks their record, `tokens` and `differences` prepare what is shown, `pages` makes it
into HTML, and `app` answers requests. Everything is read from the files of a run when it is asked for, so that a run in
progress can be watched; nothing is ever written.
"""
