"""The proxy of the environment that a request goes to, for messages and `doctor`."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

PROXY_VARIABLES: Final = {
    variable: meaning
    for name, meaning in (
        ("http_proxy", "the proxy of requests to http://"),
        ("https_proxy", "the proxy of requests to https://"),
        ("all_proxy", "the proxy of all other requests"),
        ("grpc_proxy", "the proxy of gRPC"),
        ("no_proxy", "the hosts that are reached without a proxy"),
    )
    for variable in (name, name.upper())
}
"""The variables that requests and gRPC read."""


@dataclass(frozen=True)
class Proxy:
    """A proxy: its host and port, and the variable that names it."""

    place: str
    variable: str

    def __str__(self) -> str:
        return f"the proxy {self.place} of {self.variable}"


def proxy_for(url: str, *, is_grpc: bool = False) -> Proxy | None:
    """Return the proxy that a request to a URL, or host and port, goes to; None if it goes to the server itself.

    Args:
        url: The URL, or a host and port.
        is_grpc: Read gRPC's variables, in place of the variables of requests.
    """
    try:
        parts = urlsplit(url if "://" in url else f"//{url}")
        names = ("grpc_proxy", "https_proxy", "http_proxy") if is_grpc else (f"{parts.scheme}_proxy", "all_proxy")
        # gRPC reads only names in lower case.
        variables = [variable for name in names for variable in ((name,) if is_grpc else (name, name.upper()))]
        variable = next(filter(os.environ.get, variables), None)
        if variable is None:
            return None
        from requests.utils import should_bypass_proxies

        if should_bypass_proxies(url if "://" in url else f"http://{url}", no_proxy=None):
            return None
        value = os.environ[variable]
        proxy = urlsplit(value if "://" in value else f"http://{value}")
        return Proxy(f"{proxy.hostname}:{proxy.port}" if proxy.port else str(proxy.hostname), variable)
    except ValueError:
        # No URL: the request reports it.
        return None
