"""The default: nothing is started, and what is asked for is done at once."""

from posttrain.cluster.local import Here, Local
from posttrain.engines.native import Native


def test_one_process_does_everything() -> None:
    with Local().open(Native(), seed=3) as session:
        assert isinstance(session, Here)
        done: list[str] = []

        def work() -> int:
            done.append("now")
            return len(done)

        take = session.beside([], work)
        assert done == ["now"] and take() == 1 and take() == 1
        session.keep([])
        assert session.take_notes() == [] and session.take_timing() == {}
