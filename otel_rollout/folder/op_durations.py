"""The durations of ops by name, in buckets that grow by a quarter of an octave; a percentile is 19% off at most."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Final

from otel_rollout.text.sanitize import replace_surrogates

if TYPE_CHECKING:
    # Readers of what runs import this module, and start in a moment.
    from opentelemetry.sdk.trace import ReadableSpan

MAX_NAMES: Final = 256
MAX_CHARACTERS: Final = 256
_BUCKETS_IN_OCTAVE: Final = 4
_MAX_BUCKET: Final = 256
_BUCKETS: Final = frozenset(map(str, range(_MAX_BUCKET + 1)))


class OpDurations:
    """The durations of ops, by name."""

    def __init__(self) -> None:
        self._counts: defaultdict[str, Counter[int]] = defaultdict(Counter)

    def add(self, spans: Iterable[ReadableSpan]) -> None:
        """Count ended spans other than roots; names beyond a bound are left out."""
        for span in spans:
            if span.parent is None or span.start_time is None or span.end_time is None:
                continue
            name = span.name[:MAX_CHARACTERS]
            if name in self._counts or len(self._counts) < MAX_NAMES:
                self._counts[name][_bucket((span.end_time - span.start_time) / 1e9)] += 1

    def merge(self, given: Mapping[str, Mapping[str, int]]) -> None:
        """Add the counts that `as_json` of another process returned; what has another form is left out."""
        for name, buckets in given.items():
            for bucket, count in buckets.items():
                if bucket in _BUCKETS and type(count) is int and count > 0:
                    self._counts[name][int(bucket)] += count

    def as_json(self) -> dict[str, dict[str, int]]:
        """Return the counts by name and bucket."""
        return {
            replace_surrogates(name): {str(bucket): count for bucket, count in counts.items()}
            for name, counts in self._counts.items()
        }

    def percentile(self, name: str, share: float) -> float | None:
        """Return the seconds that a share of the ops of a name took at most; None if there was none."""
        counts = self._counts.get(name)
        if not counts:
            return None
        left = math.ceil(share * counts.total())
        for bucket in sorted(counts):
            left -= counts[bucket]
            if left <= 0:
                return _seconds(bucket)
        return None


def _bucket(seconds: float) -> int:
    microseconds = max(1.0, seconds * 1e6)
    return min(_MAX_BUCKET, math.ceil(math.log2(microseconds) * _BUCKETS_IN_OCTAVE))


def _seconds(bucket: int) -> float:
    """Return the upper end of a bucket."""
    return float(2.0 ** (bucket / _BUCKETS_IN_OCTAVE)) / 1e6
