"""Traces the steps FIRST to LAST into the trace folder; with `kill` it kills itself within the last one.

With `kill at once` it does so in the first rollout of that step.
"""

import os
import signal
import sys

import otel_rollout
from otel_rollout import start_trajectory

first, last = map(int, sys.argv[1:3])
otel_rollout.init("p", "base", backend="file")
for step in range(first, last + 1):
    for sample in range(2):
        for rollout in range(2):
            trajectory = start_trajectory(sample, step, rollout)
            if sys.argv[3:] and (step, sample) == (last, int("once" not in sys.argv)):
                otel_rollout.flush()
                os.kill(os.getpid(), signal.SIGKILL)
            trajectory.annotate(reward=1.0)
            trajectory.end()
otel_rollout.shutdown()
