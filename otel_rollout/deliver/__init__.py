"""The way from an ended span to an exporter: queue, batches, spool, accounting."""
