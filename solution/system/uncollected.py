"""Disable garbage collection; the server that workers are forked from imports this module first.

Imports create no garbage, but searching for it takes a quarter of the time of an import. Workers
enable garbage collection again (see processes.py). On Ctrl-C the server ends silently, because the
process that started it prints the message.
"""

import gc
import os
import signal

gc.disable()
signal.signal(signal.SIGINT, lambda *_: os._exit(1))
