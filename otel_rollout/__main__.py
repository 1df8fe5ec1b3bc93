"""`python -m otel_rollout`: the command `otel-rollout` without its script."""

import sys

from otel_rollout.cli.main import main

sys.exit(main())
