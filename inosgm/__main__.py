"""Run the command line as `python -m inosgm`."""

from inosgm.cli import program

program()
