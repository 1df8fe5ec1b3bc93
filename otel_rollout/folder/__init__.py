"""The trace folder: trajectories on disk, as archive, spool and source of replay."""
