"""Probe whether a Ray cluster answers at an address, because Ray itself would try for minutes."""

import os
import re
import socket
from importlib.util import find_spec
from typing import Any

from solution.system.errors import InputError
from solution.system.wording import how_to_install

AUTO = "auto"  # the cluster that this machine is part of
PORT = re.compile(r"^(\[[0-9a-fA-F:.]+\]|[^][:/@\s]+):([0-9]{1,5})$")  # HOST:PORT
SECONDS = 5.0  # timeout of the connection, and of the server's answer
ADVICE = "Begin one with `ray start --head`."
# The opening of HTTP/2, with empty settings. A server that Ray can use answers with its settings.
GREETING = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0])
SETTINGS, FRAME = 4, 9  # in HTTP/2: type of a settings frame, bytes of a frame's header


def check_cluster(address: str | None) -> None:
    """Raise InputError unless Ray is installed and, for HOST:PORT, a cluster answers."""
    if find_spec("ray") is None:
        raise InputError(f"A cluster needs Ray. {how_to_install('cluster')}.")
    if address is not None:
        check_cluster_address(address)
        if address != AUTO:
            probe(address)


def check_cluster_address(address: str) -> None:
    """Raise InputError unless the address is auto or HOST:PORT."""
    if "@" in address:
        raise InputError(
            "The address of a cluster holds a name or a password. Give HOST:PORT, and the token in "
            "the environment (RAY_AUTH_MODE=token, RAY_AUTH_TOKEN)."
        )
    if address != AUTO and not PORT.match(address):
        raise InputError(
            f"{address!r}: expected the address of a cluster, HOST:PORT of its head such as "
            f"10.0.0.1:6379, or {AUTO} on one of its machines. Without --address, a Ray of this "
            "machine alone is started."
        )


def probe(address: str) -> None:
    """Raise InputError unless a server that Ray can use listens at HOST:PORT."""
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), SECONDS) as line:
            if os.environ.get("RAY_USE_TLS", "0").lower() in ("1", "true"):
                return  # with TLS a server expects another greeting, so it is not checked further
            line.settimeout(SECONDS)
            line.sendall(GREETING)
            said = line.recv(FRAME)
    except (OSError, OverflowError, ValueError) as error:
        raise _name_silence(address, error) from error
    if len(said) < FRAME or said[3] != SETTINGS:
        raise InputError(
            f"{address}: no Ray cluster answers there, but something else. Give the port of "
            f"`ray start --head` (6379 where none was given). {ADVICE}"
        )


def find_head(address: str) -> str:
    """Return HOST:PORT of the cluster's head as Ray writes it: `auto` and names of this machine are
    resolved. Raises OSError or ValueError if there is no cluster."""
    from ray._private.services import canonicalize_bootstrap_address

    return str(canonicalize_bootstrap_address(address) or address)


def explain_silence(ray: Any, address: str, error: Exception) -> InputError:
    """Return the InputError to show for Ray's `error`: token rejected, or no cluster answers."""
    if not isinstance(error, ray.exceptions.RayError):
        error = _ask(ray, address) or error
    if type(error).__name__ == "AuthenticationError":
        return InputError(
            f"{address}: refuses the token, or there is none. Set RAY_AUTH_MODE=token and "
            "RAY_AUTH_TOKEN to what they were where `ray start --head` was called."
        )
    return _name_silence(address, error)


def _name_silence(address: str, error: Exception) -> InputError:
    return InputError(f"{address}: no Ray cluster answers there ({error}). {ADVICE}")


def _ask(ray: Any, address: str) -> Exception | None:
    """Return the error that the cluster's head service raises on a connection, or None."""
    try:
        ray._raylet.GcsClient(address=find_head(address))
    except (ray.exceptions.RayError, OSError, ValueError) as error:
        return error
    return None
