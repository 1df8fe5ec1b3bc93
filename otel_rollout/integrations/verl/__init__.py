"""verl (https://github.com/verl-project/verl), traced without an edit of it; see docs/verl.md.

`plugin` is the entry point; the other modules hold one hook each.
"""
