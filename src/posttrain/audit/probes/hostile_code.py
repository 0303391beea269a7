"""Answers that are code. A grader that evaluates them creates the canary file, exits or hangs."""

from collections.abc import Iterator

from posttrain.audit import Probe, Subject


def probes(subject: Subject) -> Iterator[Probe]:
    """Expressions, statements and templates."""
    make = f"open({subject.canary!r}, 'w').close()"
    shell = f"touch {subject.canary}"
    texts = {
        "call": make,
        "import": f"__import__('os').system({shell!r})",
        "in a list": f"[{make}, 1][1]",
        "by name": f"getattr(__import__('os'), 'sys' + 'tem')({shell!r})",
        "subclasses": "().__class__.__base__.__subclasses__()",
        "exec": f"exec({make!r})",
        "sympy": f"sympify({make!r})",
        "lambda": f"(lambda: {make})()",
        "attribute": f"x.__init__.__globals__['__builtins__']['open']({subject.canary!r}, 'w')",
        "exit": "exit(0)",
        "hard exit": "__import__('os')._exit(0)",
        "loop": "[1 for _ in iter(int, 1)]",
        "memory": "'x' * 10**11",
        "shell": f"$({shell}) `{shell}`",
        "template": f"{{{{ cycler.__init__.__globals__.os.popen('{shell}').read() }}}}",
        "yaml": f"!!python/object/apply:os.system ['{shell}']",
        "pickle": f"cos\nsystem\n(S'{shell}'\ntR.",
        "fence": f"```python\n{make}\n```",
    }
    for name, text in texts.items() if subject.first else ():
        yield Probe(name=name, text=subject.written(text), expected="unrewarded", may_fail=True, of_answer=True)
