"""Regret in turns: how many more an episode took than the shortest plan, with failures above every success."""


def extra_turns(turns: int, *, solved: bool, shortest: int, horizon: int) -> float:
    """Turns of a solved episode beyond the shortest plan; a failed one counts as one turn more than the limit.

    So an episode that gives up at once is worse than one that is solved in the last turn. Where the limit `horizon` is
    below the shortest plan, the plan is as long as the limit: a failure is never without regret.
    """
    return float(max((turns if solved else horizon + 1) - min(shortest, horizon), 0))
