"""The command `tidelock`: parse, call, print."""

from tidelock.cli.command import main

__all__ = ["main"]
