"""Delivery: from a finished span to an exporter, bounded in bytes, with every loss counted."""
