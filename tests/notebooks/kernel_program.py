"""Begins a kernel as `python -m ipykernel_launcher` does, in a fork of tests/processes.py."""

import os
import runpy
import sys

if __name__ == "__main__":
    del sys.path[0]  # the folder of this file, which no kernel has
    os.environ.pop("JPY_PARENT_PID", None)  # its parent is the server; that ends it as well
    runpy.run_module("ipykernel_launcher", run_name="__main__")
