"""The command `import`, and requests to import."""

from __future__ import annotations

from otel_rollout.cli.main import main
from tests.trace_folder.recordings import make_trajectory

TRAJECTORIES = [make_trajectory(1, sample) for sample in range(20)]
# The roots come first, and each request has a span of every trajectory.
REQUESTS = [[spans[number] for spans in TRAJECTORIES] for number in (2, 0, 1)]


def add(capsys, *paths, into, code=0):
    """Import files, and return what is on standard output and standard error."""
    assert main(["import", *map(str, paths), "--into", str(into)]) == code
    shown = capsys.readouterr()
    return shown.out, shown.err
