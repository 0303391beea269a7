"""A local web viewer of runs: rollouts token by token, and the history of every task.

`library` finds runs, `questions` queries their tables, `tokens` and `differences` prepare what is shown, `pages` builds
the data of each page, and `app` answers requests. Each request reads the files of the run, so a run in progress can be
watched. `index` writes an index of the rollouts beside them, which is never needed.
"""
