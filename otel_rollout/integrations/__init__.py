"""Integrations with other frameworks; none imports its framework."""
