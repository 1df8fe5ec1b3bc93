"""Texts: lone surrogates and int64, control characters, near misses of names, patterns that take too long."""
