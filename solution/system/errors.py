"""Define the only exception class whose messages are written for users."""


class InputError(Exception):
    """An input of the user cannot be used. The message names the file, what was expected, what was
    found and what to do. The command line prints it without a traceback and exits with code 2."""
