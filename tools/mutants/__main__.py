"""Measure what the tests notice: ``make mutants``, or ``python tools/mutants COMMAND [SUITE ...]``.

A mutant is a small change of the source code that a test should notice. The sample of mutants is ``sample.json``.
A suite is a text with the paths and options of pytest that select its tests in ``make test``.

sample   draw a new sample of 200 mutants
locate   find the places of the mutants again after the code has changed
trace    run all suites once, and record which lines each test runs, in all of its processes, and its CPU seconds
costs    print the CPU seconds of each suite, and the twenty tests that cost most
run      run, for each mutant without a result, the tests that run its statement, until one fails; resumes after a kill
report   print the mutants that survived, and which of them were killed when results were accepted before
accept   note in the sample what is killed now; what was killed before stays noted
"""

from __future__ import annotations

import argparse
import heapq
import json
import multiprocessing
import os
import shlex
import shutil
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path
from typing import Any

from _environment import ROOT, WORK, copy_tree, make_environment, start_tests
from _mutant_run import MutantWorker
from _test_costs import covering_tests, read_costs
from mutations import Mutant, draw_sample, find_mutants, locate_again

HERE = Path(__file__).parent
SAMPLE = HERE / "sample.json"
COSTS, RESULTS = WORK / "costs", WORK / "results.jsonl"
PACKAGES = (
    "det_core", "plugins/testing/det_testing", "plugins/cluster/det_cluster", "plugins/torch/det_torch",
    "plugins/server/det_server", "plugins/storage_s3/det_storage_s3", "plugins/storage_gcs/det_storage_gcs",
)  # fmt: skip
WITHOUT = ("det_core/cli/templates/",)
COUNT, SEED = 200, 32
SIDE_BY_SIDE = 3
RESULTS_BY_RANK = ("survived", "test", "unit")
"""What became of a mutant. ``unit``: a test of ``make unit`` killed it, ``test``: another one of ``make test`` did."""
SURVIVED = RESULTS_BY_RANK[0]
WORKERS = 2 * (os.cpu_count() or 1)  # tests also wait


def sample(suites: Sequence[str]) -> int:
    mutants = draw_sample(find_mutants(ROOT, PACKAGES, WITHOUT), COUNT, SEED)
    _write_sample(dict.fromkeys(mutants, SURVIVED))
    print(f"{len(mutants)} mutants: {dict(Counter(mutant.kind for mutant in mutants))}")
    return 0


def locate(suites: Sequence[str]) -> int:
    candidates = find_mutants(ROOT, PACKAGES, WITHOUT)
    found = {mutant: (locate_again(mutant, candidates), best) for mutant, best in read_sample().items()}
    _write_sample({new: best for new, best in found.values() if new})
    for gone in (mutant for mutant, (new, _) in found.items() if not new):
        print(f"gone: {gone.key}: {gone.before!r} -> {gone.after!r}")
    return 0


def read_sample() -> dict[Mutant, str]:
    """Return the mutants of the sample, with the best of `RESULTS_BY_RANK` that was accepted for each."""
    return {Mutant(**entry["mutant"]): entry["best"] for entry in json.loads(SAMPLE.read_text(encoding="utf-8"))}


def _write_sample(mutants: Mapping[Mutant, str]) -> None:
    lines = [json.dumps({"best": best, "mutant": asdict(mutant)}) for mutant, best in mutants.items()]
    SAMPLE.write_text("[\n" + ",\n".join(lines) + "\n]\n", encoding="utf-8")


def trace(suites: Sequence[str]) -> int:
    tree, traces = WORK / "tree", WORK / "traces"
    shutil.rmtree(WORK, ignore_errors=True)
    COSTS.mkdir(parents=True)
    copy_tree(tree)
    python = make_environment(tree, WORK / "venv")
    traces.mkdir()

    def run(suite: str) -> None:
        started, name = time.monotonic(), _suite_name(suite)
        arguments = ["-m", "not (slow or campaign)", "-q", *shlex.split(suite)]
        variables = {"DET_MUTANT_COSTS": str(COSTS / f"{name}.jsonl")}
        code = start_tests(python, tree, arguments, variables, COSTS / f"{name}.log").wait()
        print(f"{name}: exit code {code} after {time.monotonic() - started:.0f} s", flush=True)

    with ThreadPoolExecutor(SIDE_BY_SIDE) as threads:
        list(threads.map(run, suites))
    from coverage import Coverage

    coverage = Coverage(data_file=str(WORK / "coverage"), config_file=False)
    # Processes that were killed leave journals.
    coverage.combine([str(file) for file in traces.iterdir() if not file.name.endswith("-journal")])
    coverage.save()
    shutil.rmtree(traces)
    return 0


def _suite_name(suite: str) -> str:
    return suite.split()[0].replace("/", "-")


def costs(suites: Sequence[str]) -> int:
    by_suite = {suite: read_costs(COSTS / f"{_suite_name(suite)}.jsonl") for suite in suites}
    for suite, tests in by_suite.items():
        print(f"{sum(cost.cpu for cost in tests.values()):7.1f} s  {len(tests):5} tests  {suite}")
    everything = ((cost.cpu, test) for tests in by_suite.values() for test, cost in tests.items())
    for cpu, test in heapq.nlargest(20, everything):
        print(f"{cpu:7.1f} s  {test}")
    return 0


def run(suites: Sequence[str]) -> int:
    costs = {name: read_costs(COSTS / f"{_suite_name(name)}.jsonl") for name in suites}
    done = _results()
    waiting = [mutant for mutant in read_sample() if mutant.key not in done]
    tests = covering_tests(WORK / "coverage", WORK / "tree", waiting)
    work: Any = multiprocessing.Queue()
    for mutant in waiting:
        work.put((mutant, tests[mutant]))
    for _ in range(WORKERS):
        work.put(None)
    workers = [multiprocessing.Process(target=_work, args=(number, work, costs)) for number in range(WORKERS)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return int(any(worker.exitcode for worker in workers)) or report(suites)


def _work(number: int, work: Any, costs: Any) -> None:
    tree = WORK / f"tree-{number}"
    shutil.rmtree(tree, ignore_errors=True)
    shutil.copytree(WORK / "tree", tree, symlinks=True)
    worker = MutantWorker(make_environment(tree, WORK / f"venv-{number}"), tree, costs)
    while item := work.get():
        result = worker.test_mutant(*item)
        with RESULTS.open("a", encoding="utf-8") as results:
            results.write(json.dumps(result) + "\n")
        print(f"{result['key']}: {result['result']} by {result['by']}, {result['cpu']} s", flush=True)


def _results() -> dict[str, str]:
    """Return the results so far by the keys of the mutants."""
    lines = RESULTS.read_text(encoding="utf-8").splitlines() if RESULTS.exists() else []
    return {entry["key"]: entry["result"] for entry in map(json.loads, lines)}


def report(suites: Sequence[str]) -> int:
    results = _results()
    best = {mutant: accepted for mutant, accepted in read_sample().items() if mutant.key in results}
    for mutant, accepted in best.items():
        if results[mutant.key] == SURVIVED:
            lost = " (was killed before)" if accepted != SURVIVED else ""
            print(f"survived{lost}: {mutant.key}: {mutant.before!r} -> {mutant.after!r}")
    count, total = Counter(results[mutant.key] for mutant in best), max(len(best), 1)
    print(
        f"{len(best)} mutants: {100 * count['unit'] / total:.1f} % killed by unit tests, "
        f"{100 * (total - count[SURVIVED]) / total:.1f} % by make test"
    )
    return 0


def accept(suites: Sequence[str]) -> int:
    results = _results()
    _write_sample(
        {
            mutant: max(accepted, results.get(mutant.key, SURVIVED), key=RESULTS_BY_RANK.index)
            for mutant, accepted in read_sample().items()
        }
    )
    return 0


COMMANDS = {command.__name__: command for command in (sample, locate, trace, costs, run, report, accept)}


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=COMMANDS)
    parser.add_argument("suites", nargs="*", metavar="SUITE", help="paths and options of pytest")
    options = parser.parse_args()
    return COMMANDS[options.command](options.suites)


if __name__ == "__main__":
    sys.exit(main())
