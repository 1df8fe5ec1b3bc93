"""Tracing of verl (https://github.com/verl-project/verl) without an edit of it; see docs/how-to/verl.md.

`plugin` is the entry point.
"""
