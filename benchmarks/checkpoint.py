"""Times of det, `cp -r` and the system that det replaces to store and restore checkpoints of 1 GiB and of 1000 x 1 KB.

The cases are interleaved. In every round, each case starts with its target absent, nothing left to be written to disk,
and the source in the page cache. Ratios are medians over the rounds of (case / `cp -r` of the same round). det verifies
checksums and returns when the checkpoint would survive a power failure, as `cp -r` followed by `sync` does. The
original does neither. To measure another disk, give a directory on it as argument.
"""

from __future__ import annotations

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from environments import original

from det_core import core

ROUNDS = 7
SHAPES = {"1 GiB": (1, 1 << 30), "1000 x 1 KB": (1000, 1 << 10)}
UPLOAD_GOALS = {"1000 x 1 KB": {"det upload": 1.2}}
ORIGINAL = """
import sys, time
from determined.common.storage.shared import SharedFSStorageManager
storage = SharedFSStorageManager(sys.argv[1])
for line in sys.stdin:
    verb, *arguments = line.split()
    start = time.perf_counter()
    getattr(storage, verb)(*arguments)
    print(time.perf_counter() - start, flush=True)
"""

Case = Callable[[], float]


def timed(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def copy(source: Path, target: Path, *, durable: bool = False) -> None:
    subprocess.run(["cp", "-r", source, target], check=True)
    if durable:
        subprocess.run(["sync", "-f", target], check=True)


class Original:
    """Storage manager of the original, in a separate process."""

    def __init__(self, base: Path) -> None:
        pipe = subprocess.PIPE
        self._process = subprocess.Popen([original(), "-c", ORIGINAL, base], stdin=pipe, stdout=pipe, text=True)

    def call(self, verb: str, source: object, target: object) -> float:
        assert self._process.stdin and self._process.stdout
        print(verb, source, target, file=self._process.stdin, flush=True)
        return float(self._process.stdout.readline())

    def close(self) -> None:
        self._process.communicate(timeout=30)


def fill(directory: Path, count: int, size: int) -> Path:
    directory.mkdir()
    for number in range(count):
        (directory / f"file-{number}").write_bytes(os.urandom(size))
    return directory


def show(title: str, cases: dict[str, Case], clean: Callable[[], None], goals: dict[str, float]) -> None:
    """Print the time of each case, its ratio to the first case, and its goal."""
    rounds = []
    for _ in range(ROUNDS + 1):
        times = {}
        for name, case in cases.items():
            clean()
            os.sync()
            times[name] = case()
        rounds.append(times)
    del rounds[0]  # the warm-up
    base = next(iter(cases))
    print(title)
    for name in cases:
        seconds = statistics.median(times[name] for times in rounds)
        ratio = statistics.median(times[name] / times[base] for times in rounds)
        goal = f"  goal <= {goals[name]}" if name in goals else ""
        print(f"  {name:32}{1000 * seconds:9.1f} ms{ratio:8.2f}{goal}")


def measure(shape: str, directory: Path, context: core.Context) -> None:
    source, target, stored = fill(directory / "source", *SHAPES[shape]), directory / "target", directory / "original"
    original = Original(stored)
    kept = context.checkpoint.upload(source, {"steps_completed": 0})
    uploaded: list[str] = []

    def upload() -> None:
        uploaded.append(context.checkpoint.upload(source, {"steps_completed": 1}))

    def restore() -> None:
        with context.checkpoint.restore_path(kept):
            pass

    def clean() -> None:
        shutil.rmtree(target, ignore_errors=True)
        shutil.rmtree(stored / "new", ignore_errors=True)
        while uploaded:
            context.checkpoint.delete(uploaded.pop())

    show(
        f"{shape}, upload",
        {
            "cp -r": lambda: timed(lambda: copy(source, target)),
            "cp -r; sync": lambda: timed(lambda: copy(source, target, durable=True)),
            "det upload": lambda: timed(upload),
            "determined 0.38.1 upload": lambda: original.call("upload", source, "new"),
        },
        clean,
        UPLOAD_GOALS.get(shape, {}),
    )
    original.call("upload", source, "kept")
    show(
        f"{shape}, download",
        {
            "cp -r": lambda: timed(lambda: copy(source, target)),
            "det download": lambda: timed(lambda: context.checkpoint.download(kept, target)),
            "det restore_path (verified links)": lambda: timed(restore),
            "determined 0.38.1 download": lambda: original.call("download", "kept", target),
        },
        clean,
        {},
    )
    original.close()


def main() -> None:
    with tempfile.TemporaryDirectory(dir=sys.argv[1] if len(sys.argv) > 1 else None) as scratch:
        os.environ["DET_HOME"] = str(Path(scratch, "home"))
        with core.init(checkpoint_storage=Path(scratch, "storage")) as context:
            for number, shape in enumerate(SHAPES):
                directory = Path(scratch, str(number))
                directory.mkdir()
                measure(shape, directory, context)


if __name__ == "__main__":
    main()
