"""A reward that differs between the rollouts of most prompts, loaded by verl by path; one call fails."""

import itertools
import zlib

_tries = itertools.count()


def compute_score(data_source, solution_str, ground_truth, extra_info=None, **kwargs):
    if "It is" in solution_str and next(_tries) == 1:
        raise ValueError("the grader fails")
    return 0.25 if "I can't tell" in solution_str else zlib.crc32(solution_str.encode()) % 999_983 / 1e6
