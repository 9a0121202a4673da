"""What the benchmarks beside other programs share: running them, installing the rival, naming the CPU."""

import pathlib
import platform
import subprocess
import sys


def output(*command):
    """What a command prints; it must succeed."""
    done = subprocess.run([str(part) for part in command], stdout=subprocess.PIPE, check=True, text=True)
    return done.stdout


def environment(directory, *packages, python=sys.executable):
    """A Python with these packages in a new environment, or None, which is said."""
    inside = directory / "bin" / "python"
    try:
        subprocess.run([python, "-m", "venv", directory], check=True)
        subprocess.run([inside, "-m", "pip", "install", "--quiet", *packages], check=True)
        return inside
    except FileNotFoundError:
        problem = f"there is no {python}, which it needs"
    except subprocess.CalledProcessError as error:
        problem = error
    print(f"{packages[0]} could not be installed ({problem}); going on without it, or name a Python that has it with --python", file=sys.stderr)
    return None


def cpu_model():
    try:
        lines = pathlib.Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()
