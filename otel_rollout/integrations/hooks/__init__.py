"""Hooks for the functions of any trainer: a hook observes calls and never changes what the caller gets."""
