"""The command ``mile``, also as ``python -m mile``."""

from __future__ import annotations

import sys

from ._mile import command


def main() -> int:
    """Runs the command with the arguments of this process.

    Its agents are processes of the same command, so it says how it is started: by the script that an installation makes, or as a module.
    """
    script = sys.argv[0]
    again = ["-m", "mile"] if script == __file__ else [script]
    return command(sys.executable, again, ["mile", *sys.argv[1:]])


if __name__ == "__main__":
    sys.exit(main())
