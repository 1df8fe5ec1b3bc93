"""Start servers of the run that this process belongs to, before a test waits for them.

python -m tests.servers.early NAME…
"""

from __future__ import annotations

import sys
from contextlib import suppress

from tests.servers.shared import server

if __name__ == "__main__":
    for name in sys.argv[1:]:
        # A test that needs it says what is wrong.
        with suppress(Exception):
            server(name)
