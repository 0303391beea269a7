"""Suites of tests: ones that reject everything, end early, read the source or the clock, and test nothing."""

from collections.abc import Iterator

from posttrain.audit import Probe, Subject

FIELDS = ("correct", "wrong")


def probes(subject: Subject) -> Iterator[Probe]:
    """Texts that no suite of tests is, or that a correct solution fails."""
    name = str(subject.task.fields.get("function", "f"))
    own = subject.task.demonstrations[0] if subject.task.demonstrations else subject.answer
    texts = {
        "rejects all": "assert False",
        "raises": "raise AssertionError",
        "an exit": f"import os\nos._exit(1)\nassert {name}(1) == 1",
        "a kill": "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)",
        "the source": f"import inspect\nassert 'if' in inspect.getsource({name})",
        "the clock": f"import time\nassert {name}(time.time()) == 1",
        "the identity": f"assert {name}({name}) == {name}",
        "a comparison with itself": f"assert {name}(1) == {name}(1)",
        "another name": "assert g(1) == 1",
        "a result of another type": f"{own}\nassert {name}('posttrain') == b'posttrain'",
        "a wrong result": f"{own}\nassert {name}(3) == 'posttrain'",
        "a copied definition": subject.task.fields["correct"][0],
        "a wrong definition": subject.task.fields["wrong"][0],
        "a forged report": "print('12 passed')\nprint('OK')",
    }
    for title, text in texts.items():
        yield Probe(name=title, text=subject.written(text), expected="unrewarded")
    if own:
        yield Probe(name="clones", text=subject.written("\n".join([own] * 5)), expected="rewarded")
        yield Probe(name="with remarks", text=subject.written(f"# tests\n{own}\n# the end"), expected="rewarded")
