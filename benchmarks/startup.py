"""CPU time and modules of det's imports and commands, and CPU time of `core.init`.

Each figure over bare Python is the median over ROUNDS of the difference to `python -c pass` of the same round. Machines
differ, so the goals count as ratios to the peer: `from determined import core` in the same run.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from environments import original

ROUNDS = 15
DET = str(Path(sys.executable).parent / "det")
CASES = {
    "python -c pass": [sys.executable, "-c", "pass"],
    "import det_core": [sys.executable, "-c", "import det_core"],
    "from det_core import core": [sys.executable, "-c", "from det_core import core"],
    "det --version": [DET, "--version"],
    "det --help": [DET, "--help"],
    "det plugins list": [DET, "plugins", "list"],
    "det experiment list": [DET, "experiment", "list"],
    "import det_torch": [sys.executable, "-c", "import det_torch"],
    "import determined": [str(original()), "-c", "import determined"],
    "from determined import core": [str(original()), "-c", "from determined import core"],
}
PEER = "from determined import core"
GOALS = {"from det_core import core": 100, "det --help": 85, "det plugins list": 85, "det experiment list": 300}
"""Maximum CPU milliseconds over bare Python on the machine of `PEER_MILLISECONDS`."""
PEER_MILLISECONDS = 168
"""CPU milliseconds over bare Python that the peer took on the machine for which the goals were set."""
FIRST_INIT = 40
"""Goal for the first `core.init`, as `GOALS` but without the import of SQLAlchemy."""
INIT = """
import logging, sys, time
from {package} import core
import {database}
logging.disable()
for _ in range(20):
    start = time.process_time()
    with core.init():
        print(time.process_time() - start)
"""
"""Program that enters the context repeatedly, outside of any cluster."""


def cpu_milliseconds(command: list[str]) -> float:
    """Return the user and system time of a child process that runs the command."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{command} failed")
    return 1000 * (usage.ru_utime + usage.ru_stime)


def modules(command: list[str]) -> int:
    """Return the number of modules that a child process imports to run the command."""
    timed = [command[0], "-X", "importtime", *command[1:]]
    result = subprocess.run(timed, capture_output=True, text=True, check=True)
    return sum(line.startswith("import time:") for line in result.stderr.splitlines()) - 1


def judge(milliseconds: float, goal: float | None, peer: float) -> str:
    """Return the ratio to the peer's milliseconds and, if there is a goal, the goal's ratio and whether it is met."""
    ratio = milliseconds / peer
    if goal is None:
        return f"{ratio:7.2f}"
    limit = goal / PEER_MILLISECONDS
    return f"{ratio:7.2f}{limit:7.2f}  {'met' if ratio <= limit else 'missed'}"


def main() -> None:
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # with it, each process would compile det's modules again
    with tempfile.TemporaryDirectory() as home:
        os.environ["DET_HOME"] = home
        for command in CASES.values():
            cpu_milliseconds(command)  # writes the bytecode
        rounds = [{name: cpu_milliseconds(command) for name, command in CASES.items()} for _ in range(ROUNDS)]
        bare = modules(CASES["python -c pass"])
        added = {name: statistics.median(times[name] - times["python -c pass"] for times in rounds) for name in CASES}
        print(f"{'':28}{'CPU ms':>8}{'over bare':>11}{'goal':>6}{'modules over bare':>19}{'ratio':>7}{'goal':>7}")
        for name, command in CASES.items():
            own = statistics.median(times[name] for times in rounds)
            target = [sys.executable, *command] if command[0] == DET else command
            goal = GOALS.get(name)
            print(
                f"{name:28}{own:8.1f}{added[name]:11.1f}{goal or '':>6}{modules(target) - bare:19}"
                f"{judge(added[name], goal, added[PEER])}"
            )
        print(f"ratios are to `{PEER}`, and the goals were set where it took {PEER_MILLISECONDS} ms\n")
        for package, database, python in (
            ("det_core", "sqlalchemy", sys.executable),
            ("determined", "sqlite3", str(original())),
        ):
            firsts, rests = [], []
            for round_number in range(ROUNDS):
                os.environ["DET_HOME"] = f"{home}/{package}-{round_number}"
                program = INIT.format(package=package, database=database)
                output = subprocess.check_output([python, "-c", program], text=True)
                first, *rest = [1000 * float(line) for line in output.split()]
                firsts.append(first)
                rests += rest
            first = statistics.median(firsts)
            print(
                f"{package}: core.init() takes {first:.1f} CPU ms the first time, then {statistics.median(rests):.1f}"
            )
            if package == "det_core":
                print(f"    first time: goal {FIRST_INIT} ms; ratio, goal:{judge(first, FIRST_INIT, added[PEER])}")
        print("det's core.init() writes an experiment to SQLite, whose file it creates the first time")
        print("determined's core.init() stores nothing")


if __name__ == "__main__":
    main()
