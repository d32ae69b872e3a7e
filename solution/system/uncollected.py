"""Imported first where a server of workers imports its libraries: nothing there is garbage.

To look for some takes a quarter of the time of the imports. Workers look for it: see processes.py.
"""

import gc

gc.disable()
