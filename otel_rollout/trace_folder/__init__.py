"""The trace folder: trajectories on disk, one line of OTLP JSON each, as archive, spool and source of replay."""
