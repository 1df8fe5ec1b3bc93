"""`python -m otel_rollout.cli`: the command where its script is not on the path."""

import sys

from otel_rollout.cli.main import main

sys.exit(main())
