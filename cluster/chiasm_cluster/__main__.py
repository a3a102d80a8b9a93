"""Runs the command line."""

import sys

from chiasm_cluster.cli import main

sys.exit(main())
