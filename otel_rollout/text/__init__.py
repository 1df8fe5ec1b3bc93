"""Texts: lone surrogates and int64, control characters, near misses of names, patterns that take too long."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from otel_rollout.text.misspelt_variables import unread_variables
    from otel_rollout.text.near_miss import closest, did_you_mean
    from otel_rollout.text.pattern_check import compile_pattern
    from otel_rollout.text.plain_text import counted, cut_text, duration, printable, shorten
    from otel_rollout.text.sanitize import INT64_MAX, INT64_MIN, fits_int64, replace_surrogates
else:
    from otel_rollout.lazy import lazy_names

    __getattr__ = lazy_names(
        __name__,
        {
            "misspelt_variables": ("unread_variables",),
            "near_miss": ("closest", "did_you_mean"),
            "pattern_check": ("compile_pattern",),
            "plain_text": ("counted", "cut_text", "duration", "printable", "shorten"),
            "sanitize": ("INT64_MAX", "INT64_MIN", "fits_int64", "replace_surrogates"),
        },
    )
