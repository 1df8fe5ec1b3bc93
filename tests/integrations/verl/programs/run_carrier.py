"""A Ray program of a user's own, without verl: an actor scores an answer inside the trajectory that asks."""

import ray

import otel_rollout
from otel_rollout import rollout_trace_attr, rollout_trace_op
from otel_rollout.hooks.carrier import extract, inject


@rollout_trace_op
def grade(answer):
    return len(answer)


@ray.remote(num_cpus=0)
class Judge:
    """Scores answers."""

    def __init__(self):
        otel_rollout.init("project", "experiment", backend="json")

    def score(self, answer, carrier):
        """Return the score."""
        with extract(carrier):
            return grade(answer)

    def flush(self):
        """Have the spans written."""
        return otel_rollout.flush(60)


ray.init(num_cpus=1, include_dashboard=False, _system_config={"prestart_worker_first_driver": False})
judge = Judge.remote()
otel_rollout.init("project", "experiment", backend="json")
for rollout_n in range(2):
    with rollout_trace_attr(sample_index=7, step=2, rollout_n=rollout_n):
        assert ray.get(judge.score.remote("four", inject())) == 4
assert ray.get(judge.flush.remote())
assert otel_rollout.flush(60)
ray.shutdown()
