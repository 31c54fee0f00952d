"""Run the command line as `python -m inosgm`."""

from inosgm.cli.program import program

program()
