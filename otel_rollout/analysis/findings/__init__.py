"""Findings: deterministic checks of step summaries, each with its threshold and its evidence."""
