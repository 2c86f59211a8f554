"""The command line, `leasehook`. Heavy modules are imported by the commands that need them, so that help is quick."""

from infra.cli.app import main

__all__ = ["main"]
