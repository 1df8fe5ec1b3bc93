"""The start of the command `otel-rollout`, outside the package: its import takes tenths of a second.

Until the command line has taken over, Ctrl-C ends the process at once, without a traceback.
"""

import signal

__all__ = ["main"]


def main() -> int:
    """Run the command line and return its exit code."""
    handler = signal.getsignal(signal.SIGINT)
    if handler is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from otel_rollout.cli.main import main as run

    return run(at_start=lambda: signal.signal(signal.SIGINT, handler))
