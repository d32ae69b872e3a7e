"""Run the command line: `python -m solution` does the same as `fastslow`."""

from solution.cli import main

main()
