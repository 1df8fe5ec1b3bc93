"""The reward function, loaded by verl by path."""

from otel_rollout import rollout_trace_op


@rollout_trace_op
def judge(text):
    return float(len(text) % 5)


def compute_score(data_source, solution_str, ground_truth, extra_info=None, **kwargs):
    assert "otel_rollout_carrier" not in kwargs
    return {"score": judge(solution_str), "acc": True}
