"""Imported first where a server of workers imports its libraries.

Nothing there is garbage: to look for some takes a quarter of the time of the imports, and workers
look for it (see processes.py). On Ctrl-C the process that began the server says what there is to
say, and the server ends.
"""

import gc
import os
import signal

gc.disable()
signal.signal(signal.SIGINT, lambda *_: os._exit(1))
