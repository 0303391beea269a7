"""The entry point: dispatches to a verb, and maps every error to a message and an exit code."""

import ast
import contextlib
import importlib
import os
import pkgutil
import sys
import traceback
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click

from posttrain.cli._output import only_answers_on_stdout, print_json
from posttrain.errors import Overlap, PosttrainError
from posttrain.errors.foreign import printable
from posttrain.errors.temporary import sweep
from posttrain.runs.garbage import rarely_collected
from posttrain.runs.threads import wait_briefly

FOLDER = Path(__file__).parent
CLOSED_PIPE = 141


class Verbs(click.Group):
    """The verbs of this folder, each imported when it is called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names of the verbs, in alphabetical order."""
        return sorted(module.name for module in pkgutil.iter_modules([str(FOLDER)]) if module.name[0] != "_")

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        """The command of a verb; None for a name that is not one."""
        if name not in self.list_commands(ctx):
            return None
        command: click.Command = importlib.import_module(f"posttrain.cli.{name}").command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Finds the verb of the arguments. Raises an error with the nearest verb for an unknown one."""
        if (
            args
            and not ctx.resilient_parsing
            and not args[0].startswith("-")
            and args[0] not in self.list_commands(ctx)
        ):
            from posttrain.component import nearest

            raise click.UsageError(f"no verb '{args[0]}'; {nearest(args[0], self.list_commands(ctx))}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Lists the verbs with the first lines of their docstrings, read without importing anything."""
        rows = [(name, _summary(FOLDER / f"{name}.py")) for name in self.list_commands(ctx)]
        with formatter.section("Verbs"):
            formatter.write_dl(rows)


def _summary(path: Path) -> str:
    """The first line of a module's docstring, without its full stop."""
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return docstring.partition("\n")[0].removesuffix(".")


@click.group(
    cls=Verbs,
    subcommand_metavar="VERB [ARGUMENTS]...",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(package_name="posttrain", message="%(prog)s %(version)s")
def group() -> None:
    """Post-training of generative models by reinforcement and imitation.

    \b
    posttrain run quickstart                         trains a tiny model in a minute or two
    posttrain run grpo tasks=mine.jsonl steps=100    a published method on your own data
    posttrain run gigpo setting=mine.yaml            a method on a recipe of your own
    posttrain diff dr_grpo                           the difference that a method makes
    posttrain VERB --help                            the options of a verb, with examples
    """  # noqa: D301


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs one command and returns its exit code."""
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    if "_POSTTRAIN_COMPLETE" in os.environ:
        from posttrain.cli._completion import install

        install()
        group.main(arguments, prog_name="posttrain")
    wait_briefly()
    sweep()
    as_json = "--json" in arguments
    try:
        with rarely_collected(), only_answers_on_stdout(as_json), _warnings_as_notes():
            return _run(arguments, as_json)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # Python flushes at exit
        return CLOSED_PIPE


def _run(arguments: list[str], as_json: bool) -> int:
    """Runs one command and maps its result to a message and an exit code."""
    try:
        color = False if os.environ.get("NO_COLOR") else None
        with group.make_context("posttrain", list(arguments), obj=arguments, color=color) as context:
            group.invoke(context)
        sys.stdout.flush()
        return 0
    except click.exceptions.Exit as finished:
        sys.stdout.flush()
        return finished.exit_code
    except BrokenPipeError:
        raise
    except (Exception, KeyboardInterrupt) as problem:
        if os.environ.get("POSTTRAIN_TRACEBACK"):
            traceback.print_exception(problem)
        message, code = _explain(problem)
    click.secho("error: ", fg="red", bold=True, nl=False, err=True)
    click.echo(printable(message), err=True)
    if as_json:
        print_json({"error": message, "exit_code": code})
    return code


@contextlib.contextmanager
def _warnings_as_notes() -> Iterator[None]:
    """Prints warnings about a recipe as a line on standard error, every time."""
    shown = warnings.showwarning

    def show(message: Warning | str, category: type[Warning], *place: Any, **more: Any) -> None:
        if issubclass(category, Overlap):
            click.secho(f"note: {printable(str(message))}", fg="yellow", err=True)
        else:
            shown(message, category, *place, **more)

    with warnings.catch_warnings():
        warnings.simplefilter("always", Overlap)
        warnings.showwarning = show
        yield


def _explain(problem: BaseException) -> tuple[str, int]:
    """The message and the exit code of an error."""
    match problem:
        case KeyboardInterrupt() | click.Abort():
            return "interrupted", 130
        case click.ClickException():
            return _usage(problem), problem.exit_code
        case PosttrainError():
            return str(problem), problem.exit_code
        case OSError(strerror=str(reason), filename=str(path)):
            return f"{path}: {reason}", 1
        case MemoryError():
            return f"out of memory (at {_place(problem)})", 1
    summary = f"{type(problem).__name__}: {problem}".partition("\n")[0]
    return (
        f"{summary} (at {_place(problem)})\nThis is a bug in posttrain. POSTTRAIN_TRACEBACK=1 shows the traceback.",
        1,
    )


def _usage(problem: click.ClickException) -> str:
    """The message of a click error, with the usage and a pointer to the help."""
    message = problem.format_message()
    if isinstance(problem, click.NoSuchOption) and "." in problem.option_name:
        name = problem.option_name.lstrip("-")
        message += f" A change to a recipe is written without dashes: {name}=VALUE"
    context = problem.ctx if isinstance(problem, click.UsageError) else None
    return f"{message}\n{context.get_usage()}\nMore: {context.command_path} --help" if context else message


def _place(problem: BaseException) -> str:
    """File and line of the innermost frame of this package."""
    package = str(FOLDER.parent)
    frames = traceback.extract_tb(problem.__traceback__)
    inner = [frame for frame in frames if frame.filename.startswith(package)] or frames
    return f"{Path(inner[-1].filename).relative_to(Path(package).parent)} line {inner[-1].lineno}"
