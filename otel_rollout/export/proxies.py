"""The proxy of the environment that a request goes to, for messages and `doctor`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

__all__ = ["PROXY_VARIABLES", "Proxy", "proxy_for"]

_MEANINGS: Final = {
    "http_proxy": "the proxy of requests to http://",
    "https_proxy": "the proxy of requests to https://",
    "all_proxy": "the proxy of all other requests",
    "grpc_proxy": "the proxy of gRPC",
    "no_proxy": "the hosts that are reached without a proxy",
}
PROXY_VARIABLES: Final[Mapping[str, str]] = {
    variable: meaning for name, meaning in _MEANINGS.items() for variable in (name, name.upper())
}
"""The variables that requests and gRPC read."""


@dataclass(frozen=True)
class Proxy:
    """A proxy.

    Args:
        place: Its host and port.
        variable: The variable that names it.
    """

    place: str
    variable: str

    def __str__(self) -> str:
        return f"the proxy {self.place} of {self.variable}"


def proxy_for(url: str, *, is_grpc: bool = False) -> Proxy | None:
    """Return the proxy that a request to `url` goes to; None if it goes to the server itself.

    Args:
        url: The URL, or a host and port.
        is_grpc: Read gRPC's variables, in place of the variables of requests.
    """
    try:
        parts = urlsplit(url if "://" in url else f"//{url}")
        names = ("grpc_proxy", "https_proxy", "http_proxy") if is_grpc else (f"{parts.scheme}_proxy", "all_proxy")
        variables = [variable for name in names for variable in (name, name.upper())]
        # gRPC reads only names in lower case.
        variable = next((each for each in variables if os.environ.get(each) and not (is_grpc and each.isupper())), None)
        if variable is None or _is_bypassed(url if "://" in url else f"http://{url}"):
            return None
        value = os.environ[variable]
        proxy = urlsplit(value if "://" in value else f"http://{value}")
        return Proxy(f"{proxy.hostname}:{proxy.port}" if proxy.port else str(proxy.hostname), variable)
    except ValueError:
        # No URL: the request reports it.
        return None


def _is_bypassed(url: str) -> bool:
    from requests.utils import should_bypass_proxies

    return bool(should_bypass_proxies(url, no_proxy=None))
