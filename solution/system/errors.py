"""The one exception that users are meant to see."""


class InputError(Exception):
    """Something the user gave cannot be used.

    The message names the file, what was expected, what was found and what to do. The command line
    prints it without a traceback and exits with code 2.
    """
