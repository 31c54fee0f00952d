"""The command line: its commands, their order, and how it ends."""

import errno
import os
import sys
import traceback
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from inosgm import __version__
from inosgm._internal.extras import missing_extra
from inosgm.cli import audit as _cli_audit
from inosgm.cli import audit_model as _cli_audit_model
from inosgm.cli import certify as _cli_certify
from inosgm.cli import compare as _cli_compare
from inosgm.cli import demo as _cli_demo
from inosgm.cli import doctor as _cli_doctor
from inosgm.cli import evaluate as _cli_evaluate
from inosgm.cli import jobs as _cli_jobs
from inosgm.cli import ledger as _cli_ledger
from inosgm.cli import plan as _cli_plan
from inosgm.cli import report as _cli_report
from inosgm.cli import revise as _cli_revise
from inosgm.cli import stats as _cli_stats
from inosgm.cli import sweep as _cli_sweep
from inosgm.cli import train as _cli_train
from inosgm.cli.help_panels import dress
from inosgm.cli.output import discard
from inosgm.cli.supervised import RAY_GONE, resuming, supervised
from inosgm.jobs.clusters import RayGone

DEBUG = "INOSGM_DEBUG"
"""The variable that makes every command print tracebacks, as `--debug` does."""

ON_RAY = "demo"
"""The command that uses Ray without an option that says so."""

CODES = """\b
Exit codes:
  0  done
  1  something failed: a run, a disk that is full, an exceeded sensitivity
  2  a mistake in the command: an option, a file, a budget
  3  an audit contradicts a guarantee
  4  Ray died, did not start, or its driver was killed: the same command resumes
130  interrupted: the same command resumes
"""


class Contents(TyperGroup):
    """The group of all commands, in the order of `CONTENTS`."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of the commands."""
        return [name for panel in CONTENTS.values() for name in panel]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command with its help in panels."""
        command = super().get_command(ctx, cmd_name)
        return None if command is None else dress(command, ctx)

    def get_params(self, ctx: Any) -> Any:
        """Return the options of the program itself, without a type behind flags."""
        params = super().get_params(ctx)
        for param in params:
            param.metavar = ""
        return params


app = typer.Typer(
    cls=Contents,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    epilog=CODES,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def program(commands: typer.Typer = app) -> None:
    """Run a command line as a program; one that may use Ray is supervised, because Ray may end its process."""
    _hold_standard_streams()
    words = sys.argv[1:]
    if commands is not app or any(word.startswith("--address") or word == ON_RAY for word in words):
        supervised(lambda: main(commands))
    else:
        main(commands)


def main(commands: typer.Typer = app) -> None:
    """Run a command line; errors end in one line, with exit code 2 for a user's mistake and 1 for a failure."""
    try:
        commands()
    except Exception as error:
        from inosgm.ledger.refusals import BudgetExceeded

        if isinstance(error, RayGone) or type(error).__module__.startswith("ray."):
            if os.environ.get(DEBUG):
                traceback.print_exception(error)
            _end(resuming(str(error).partition("\n")[0]), RAY_GONE)
        known = (ValueError, TypeError, OSError, ArithmeticError, MemoryError, RuntimeError, IndexError, ImportError)
        if os.environ.get(DEBUG) or not isinstance(error, (*known, BudgetExceeded)):
            raise
        begin = typer.style("error: ", fg="red")
        _end(begin + "\n".join([_plain(error), *getattr(error, "__notes__", [])]), 1 if _failed(error) else 2)


def _end(line: str, code: int) -> NoReturn:
    """Print the last line, if stderr can be written to, and exit."""
    try:
        typer.echo(line, err=True)
    except OSError:
        discard(2)
    sys.exit(code)


def _failed(error: Exception) -> bool:
    """Return whether an error is a failure of workers, memory or a disk, and not a mistake in the command."""
    from inosgm.jobs import StoreUnwritable

    full = isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EIO)
    return full or isinstance(error, RuntimeError | MemoryError | StoreUnwritable)


def _hold_standard_streams() -> None:
    """Open the null device for standard streams that are closed, so that no file gets the number of one.

    Libraries in C write to number 2, even if that is a ledger. Ray does not start without a stderr. A closed stdout
    stays None: commands that would lose an answer check it.
    """
    while (number := os.open(os.devnull, os.O_RDWR)) <= 2:
        os.set_inheritable(number, True)
    os.close(number)
    if sys.stderr is None:
        sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115


def _plain(error: Exception) -> str:
    """Return the message of an error; for an error of the system, the file first and no number."""
    if isinstance(error, MemoryError):  # its message has the requested size, which may be that of one record
        return "there was not enough memory; --debug shows where"
    if isinstance(error, OSError) and error.errno and error.strerror == os.strerror(error.errno):
        return f"{error.filename or 'stdout, stderr or a file'}: {error.strerror[0].lower()}{error.strerror[1:]}"
    return str((isinstance(error, ImportError) and missing_extra(error)) or error)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _top(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help=f"Print tracebacks; so does {DEBUG}=1.")] = False,
) -> None:
    """Differentially private training and statistics with a separate epsilon for every data owner."""
    if debug:
        os.environ[DEBUG] = "1"  # worker processes read it


CONTENTS: dict[str, dict[str, tuple[Any, str]]] = {
    "Plan": {"plan": (_cli_plan.plan, "What budgets buy, owner by owner.")},
    "Train": {
        "train": (_cli_train.train, "Train a model with per-owner budgets, once or with many seeds."),
        "evaluate": (_cli_evaluate.evaluate, "Evaluate a model for every owner."),
        "revise": (_cli_revise.revise, "Give owners of a run new budgets."),
        "compare": (_cli_compare.compare, "Methods on the same data, each tuned alike, in one table."),
        "sweep": (_cli_sweep.sweep, "A grid or a search over keys of a configuration."),
    },
    "Ask": {"stats": (_cli_stats.stats, "Private statistics of a table.")},
    "Check": {
        "audit": (_cli_audit.audit, "Attack a method with shadow models and canaries."),
        "audit-model": (_cli_audit_model.audit_model, "Attack a model that exists, from a table of its losses."),
        "certify": (_cli_certify.certify, "Attack the sensitivity of every built-in mechanism."),
    },
    "Look": {
        "ledger": (_cli_ledger.ledgers, "What every owner has spent, and new budgets."),
        "jobs": (_cli_jobs.jobs, "Stores of jobs: what is done, running, failed and left."),
        "report": (_cli_report.report, "One page about runs: who was promised, spent and got what."),
    },
    "Begin": {
        "demo": (_cli_demo.demo, "See what the library does, on real data."),
        "doctor": (_cli_doctor.doctor, "What is installed, found and reachable here."),
    },
}
"""Commands and groups by panel of the help, each with a line about its purpose."""

for _panel, _commands in CONTENTS.items():
    for _name, (_thing, _summary) in _commands.items():
        if isinstance(_thing, typer.Typer):
            app.add_typer(_thing, name=_name, short_help=_summary, rich_help_panel=_panel)
        else:
            app.command(_name, short_help=_summary, rich_help_panel=_panel)(_thing)
