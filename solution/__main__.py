"""`python -m solution` is `fastslow`."""

from solution.cli import main

main()
