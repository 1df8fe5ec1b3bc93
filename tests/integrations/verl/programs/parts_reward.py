"""A reward of two parts, loaded by verl by path: a right answer, and a brief one, which is earned more easily."""

BRIEF = 24
"""The characters of a brief answer."""


def compute_score(data_source, solution_str, ground_truth, extra_info=None, **kwargs):
    correct, brevity = float("answer" in solution_str), float(len(solution_str) < BRIEF)
    return {"score": 0.6 * correct + 0.4 * brevity, "correct": correct, "brevity": brevity}
