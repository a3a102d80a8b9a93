"""What a person at a terminal can do nothing about but read and act on."""

from __future__ import annotations


class CliError(Exception):
    """Ends the command with one sentence and status 1."""
