"""Rights of the callers of a tracking store, compared with the matrix in the guide of the server."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from det_core.errors import CallTooLarge, RecordNotFound, StaleRun, TrackingError
from det_core.interfaces.account_records import Role
from det_core.interfaces.records import CheckpointState, MetricsReport, State
from det_core.interfaces.server_store import Action
from det_core.interfaces.tracking import Reach, TrackingStore
from det_core.tracking import open_store
from det_core.tracking.remote import Caller, RunAccess, _access, answer_call, find_method, open_remote_store
from det_core.tracking.remote._calls import METHODS, StoreMethod

ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "docs/guides/server.md"
OWN, SISTER, FOREIGN, ENDED = 1, 2, 3, 4
"""Trials: that of the worker, another one of its experiment, one of another user, and one whose run has ended."""
COLUMNS = ("viewer", "user", "admin", "worker", "audit")


def matrix() -> dict[str, dict[str, str]]:
    """Return the cells of the guide's table by method and column."""
    rows = re.findall(r"^\| (`.*?`) \|(.*)\|$", GUIDE.read_text().partition("## What each call needs")[2], re.MULTILINE)
    found: dict[str, dict[str, str]] = {}
    for names, cells in rows:
        for name in re.findall(r"`(\w+)`", names):
            assert name not in found, f"{name} is in two rows"
            found[name] = dict(zip(COLUMNS, map(str.strip, cells.split("|")), strict=True))
    return found


MATRIX = matrix()


@pytest.fixture(scope="module")
def direct(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TrackingStore]:
    with open_store(f"sqlite:///{tmp_path_factory.mktemp('rights')}/det.db") as store:
        fill(store)
        yield store


def fill(store: TrackingStore) -> None:
    for owner, trials in (("ann", (OWN, SISTER)), ("bob", (FOREIGN,)), ("ann", (ENDED,))):
        experiment = store.create_experiment(config={}, owner=owner)
        for trial in trials:
            assert store.create_trial(experiment.id, hparams={}, seed=0).id == trial
            store.start_run(trial, allocation_id="a")
            for state in ("active", "done"):
                store.begin_checkpoint(f"{state}-{trial}", trial_id=trial, run_id=1, storage={})
            store.complete_checkpoint(f"done-{trial}", run_id=1, steps_completed=1, resources={}, metadata={})
    store.end_run(ENDED, 1)
    store.set_searcher_operation(OWN, 5)
    for owner, trial in (("ann", OWN), ("bob", FOREIGN), ("ann", ENDED)):
        store.create_model(f"m-{trial}", owner=owner)


def arguments_for(method: str, trial: int) -> dict[str, Any]:
    """Return those arguments of a method that name the records of a trial."""
    run = {"trial_id": trial, "run_id": 1}
    report = MetricsReport(**run, group="g", steps_completed=1, metrics={})
    values: dict[str, Any] = {
        **run,
        "experiment_id": {FOREIGN: 2, ENDED: 3}.get(trial, 1),
        "uuid": str(UUID(int=trial)) if method == "begin_checkpoint" else f"done-{trial}",
        "name": f"m-{trial}",
        "storage": {},
        "lease": "holder",
        **{name: [report] for name in ("reports", "samples", "lines")},
        "token_id": 1,
    }
    return {name: value for name, value in values.items() if find_method(method).takes(name)}


def worker(trial: int, role: Role = Role.USER) -> Caller:
    experiment = {FOREIGN: 2, ENDED: 3}.get(trial, 1)
    return Caller(user="ann", role=role, run=RunAccess(experiment, trial, 1, f"done-{FOREIGN}"), address="192.0.2.1")


def person(role: Role) -> Caller:
    return Caller(user="ann", role=role, address="192.0.2.1")


def check(caller: Caller, store: TrackingStore, method: StoreMethod, arguments: dict[str, Any]) -> Action | None:
    """Check a call as `answer_call` does."""
    caller.check_method(method)
    caller.check_run(store)
    return caller.check_records(store, method, arguments)


CREDENTIALS: dict[str, Caller] = {
    "viewer": person(Role.VIEWER),
    "user": person(Role.USER),
    "admin": person(Role.ADMIN),
    "worker": worker(OWN),
}
PERMITTED: dict[str, tuple[int, ...]] = {
    "": (),
    "yes": (OWN, SISTER, FOREIGN, ENDED),
    "own": (OWN, SISTER, ENDED),
    "its run": (OWN,),
    "its experiment": (OWN, SISTER),
    "its experiment and the checkpoint that it starts from": (OWN, SISTER, FOREIGN),
    "models of its user": (OWN, ENDED),
}
"""Trials whose records a caller with this cell of the matrix may name."""


def test_the_guide_has_exactly_the_methods_that_can_be_called() -> None:
    assert MATRIX.keys() == METHODS


def test_methods_for_runs_and_owners_name_a_record(direct: TrackingStore) -> None:
    """Otherwise a call would be about nothing, and everybody could make it."""
    for name in METHODS:
        method = find_method(name)
        if method.rights.writes and not method.rights.creates:
            assert list(_access._records_of(direct, method, arguments_for(name, OWN))), name


@pytest.mark.parametrize("trial", [OWN, SISTER, FOREIGN, ENDED])
@pytest.mark.parametrize("credential", CREDENTIALS)
def test_callers_may_do_what_the_guide_says(direct: TrackingStore, credential: str, trial: int) -> None:
    """All triples of a method, a credential and a record."""
    caller, different = CREDENTIALS[credential], []
    for name, cells in MATRIX.items():
        if trial == SISTER and find_method(name).takes("name"):
            continue  # models belong to no trial
        allowed = trial in PERMITTED[cells[credential]]
        try:
            action = check(caller, direct, find_method(name), arguments_for(name, trial))
        except TrackingError:
            if allowed:
                different.append((name, "refused"))
            continue
        audited = cells["audit"] == "yes" or (cells["audit"] == "of others" and trial == FOREIGN)
        if not allowed:
            different.append((name, "permitted"))
        elif audited is not bool(action):
            different.append((name, f"in the audit log: {action}"))
    assert different == []


def test_a_run_that_has_ended_or_is_not_the_newest_may_do_nothing(tmp_path: Path) -> None:
    with open_store(f"sqlite:///{tmp_path}/det.db") as store:
        fill(store)
        store.start_run(OWN, allocation_id="b")
        for caller, reason in ((worker(ENDED), "it has ended"), (worker(OWN), "the newest is run 2")):
            assert caller.run
            for name in METHODS:
                if find_method(name).rights.workers != "nothing":
                    with pytest.raises(StaleRun, match=reason):
                        check(caller, store, find_method(name), arguments_for(name, caller.run.trial_id))


def test_the_present_role_of_the_user_limits_a_run(direct: TrackingStore) -> None:
    for name in METHODS:
        method = find_method(name)
        if method.rights.writes and method.rights.workers != "nothing":
            with pytest.raises(TrackingError, match="ann has the role VIEWER here, and changes need USER"):
                check(worker(OWN, Role.VIEWER), direct, method, arguments_for(name, OWN))


def test_a_state_that_is_set_without_a_lease_is_in_the_audit_log(direct: TrackingStore) -> None:
    for lease, expected in (("holder", False), ("", True)):
        action = check(
            person(Role.USER),
            direct,
            find_method("set_experiment_state"),
            {"experiment_id": 1, "state": State.PAUSED, "lease": lease},
        )
        assert bool(action) is expected
    assert action and (action.user, action.name, action.target) == ("ann", "set_experiment_state", "experiment 1")


def test_reports_of_several_runs_are_permitted_only_together(direct: TrackingStore) -> None:
    reports = [*arguments_for("report_metrics", OWN)["reports"], *arguments_for("report_metrics", SISTER)["reports"]]
    with pytest.raises(TrackingError, match="run 1 of trial 1 may call report_metrics only for its own run"):
        check(worker(OWN), direct, find_method("report_metrics"), {"reports": reports})


@pytest.mark.parametrize("run", [None, RunAccess(1, 1, 1)])
def test_ids_that_do_not_exist_are_not_collected(direct: TrackingStore, run: RunAccess | None) -> None:
    """Any number of large integers can have the same hash, so that a set of them takes hours."""
    hashed = []

    class Id(int):
        def __hash__(self) -> int:
            hashed.append(self)
            return super().__hash__()

    reports = [SimpleNamespace(trial_id=Id(2**70 + number), run_id=1) for number in range(100)]
    with pytest.raises(TrackingError):
        Caller(user="ann", run=run).check_records(direct, find_method("report_metrics"), {"reports": reports})
    assert len(hashed) < 10


def test_the_trials_of_a_call_are_looked_up_together(direct: TrackingStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Others wait to write in the meantime."""
    monkeypatch.setattr(direct, "trial", None)
    monkeypatch.setattr(direct, "experiment", None)
    method = find_method("add_logs")
    lines = [line for trial in (OWN, FOREIGN) for line in arguments_for("add_logs", trial)["lines"]]
    action = check(person(Role.USER), direct, method, {"lines": lines})
    assert action and action.target == f"trial {FOREIGN}, trial {OWN}"
    with pytest.raises(CallTooLarge, match="10001 records"):
        check(person(Role.USER), direct, method, {"lines": [*lines * 5000, lines[0]]})


def test_a_run_without_a_source_reaches_no_checkpoint_of_others() -> None:
    run = RunAccess(experiment_id=1, trial_id=1, run_id=1, source=None)
    foreign = _access._Record("checkpoint None", "bob", experiment_id=2)
    assert not _access._REACHES[Reach.SOURCE](Caller(user="ann", run=run), run, foreign)


def test_an_entry_names_the_records_of_others_first_and_not_too_many(direct: TrackingStore) -> None:
    reports = [
        report for trial in (OWN, SISTER, ENDED, FOREIGN) for report in arguments_for("add_logs", trial)["lines"]
    ]
    action = check(person(Role.USER), direct, find_method("add_logs"), {"lines": reports})
    assert action and action.target == "trial 3, trial 1, trial 2, trial 4"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(_access, "_MOST_NAMES", 2)
        action = check(person(Role.USER), direct, find_method("add_logs"), {"lines": reports})
    assert action and action.target == "trial 3, trial 1 and 2 more"


def test_the_token_of_a_run_chooses_no_storage(direct: TrackingStore) -> None:
    """The runner would delete the directory, with its own rights. Behind an agent, code may pass one to core.init."""
    method = find_method("begin_checkpoint")
    arguments = arguments_for(method.name, OWN) | {"storage": {"type": "directory", "container_path": "/home"}}
    with pytest.raises(TrackingError, match="only in the checkpoint_storage of its experiment's config"):
        check(worker(OWN), direct, method, arguments)
    assert check(replace(worker(OWN), address=None), direct, method, arguments) is None


@pytest.mark.parametrize(
    "uuid", ["datasets", str(UUID(int=10)).upper(), UUID(int=10).hex], ids=["word", "upper", "hex"]
)
@pytest.mark.parametrize("address", ["192.0.2.1", None])
def test_nobody_claims_a_directory_that_is_no_checkpoint(direct: TrackingStore, uuid: str, address: str | None) -> None:
    """The runner would delete it, with its own rights, as soon as there are better checkpoints."""
    method = find_method("begin_checkpoint")
    with pytest.raises(TrackingError, match="a checkpoint cannot have the id .*; expected a UUID in lower case"):
        check(person(Role.USER), direct, method, arguments_for(method.name, OWN) | {"uuid": uuid})
    with pytest.raises(TrackingError, match="a checkpoint cannot have the id .*; expected a UUID in lower case"):
        check(replace(worker(OWN), address=address), direct, method, arguments_for(method.name, OWN) | {"uuid": uuid})


def test_refusals_say_what_is_needed(direct: TrackingStore) -> None:
    for caller, name, message in (
        (person(Role.VIEWER), "edit_model", "ann has the role VIEWER here, and changes need USER; ask an admin"),
        (person(Role.USER), "users", "ann has the role USER here, and users needs ADMIN"),
        (person(Role.USER), "delete_model", "model 2 belongs to bob; delete_model needs its owner or an admin"),
        (person(Role.USER), "delete_experiment", "experiment 2 belongs to bob"),
        (worker(OWN), "start_run", "run 1 of trial 1 may not call start_run, which is not for workers"),
        (worker(OWN), "edit_experiment", "run 1 of trial 1 may call edit_experiment only for its own experiment"),
    ):
        with pytest.raises(TrackingError, match=message):
            check(caller, direct, find_method(name), arguments_for(name, FOREIGN))
    with pytest.raises(RecordNotFound, match="there is no checkpoint x"):
        check(worker(OWN), direct, find_method("delete_checkpoint"), {"uuid": "x"})


# Workers behind an agent, whose store may have no accounts


IN_WORKERS = ("det_core/core", "det_core/trial", "det_core/launch", "det_core/experimental", "plugins")
NOT_IN_WORKERS = {
    "det_core/core/_unmanaged_experiment.py": "records a script that has no runner",
    "det_core/core/_script_output.py": "shows a script that has no runner",
    "det_core/experimental/_in_process.py": "trains in the user's session",
    "plugins/server": "answers the calls of workers",
}
STORES = ("store", "record", "_record")
"""Endings of the expressions for tracking stores."""
REFUSED_IN_WORKERS = {"delete_model", "delete_model_version"}
"""Methods of the SDK that workers may not call, because what they delete is not of their run."""
UNUSED_IN_WORKERS = {name for name in METHODS if not find_method(name).rights.writes}


def methods_in(file: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Attribute) and node.attr in METHODS:
            owner = ast.unparse(node.value).rpartition(".")[2]
            if owner.endswith(STORES):
                yield node.attr


def test_workers_may_write_with_exactly_the_methods_that_they_need() -> None:
    files = [file.relative_to(ROOT) for part in IN_WORKERS for file in (ROOT / part).rglob("*.py")]
    used = {
        name
        for file in [*files, Path("det_core/tracking/control.py")]
        if not any(file.is_relative_to(other) for other in NOT_IN_WORKERS) and not {"tests", "testing"} & {*file.parts}
        for name in methods_in(ROOT / file)
    }
    permitted = {name for name in METHODS if find_method(name).rights.workers != "nothing"}
    assert used - UNUSED_IN_WORKERS == permitted - UNUSED_IN_WORKERS | REFUSED_IN_WORKERS
    assert used - permitted == REFUSED_IN_WORKERS


Behind = Callable[[int], TrackingStore]


@pytest.fixture
def behind_agent(tmp_path: Path) -> Iterator[Behind]:
    """Return a function that returns the store as the workers of a trial see it through their agent."""
    with open_store(f"sqlite:///{tmp_path}/det.db") as store:
        fill(store)
        access = {trial: Caller(user="ann", run=worker(trial).run) for trial in (OWN, SISTER)}
        yield lambda trial: open_remote_store(partial(answer_call, store, caller=access[trial]), url="")


def test_a_worker_reads_everything_and_registers_models(behind_agent: Behind) -> None:
    store = behind_agent(OWN)
    assert store.trial(FOREIGN).id == FOREIGN
    assert store.checkpoints(states=list(CheckpointState))
    assert store.create_model("m", owner="bob").owner == "ann"
    assert store.add_model_version("m", f"done-{SISTER}").version == 1
    for model, trial in (("m-3", OWN), ("m", FOREIGN)):
        with pytest.raises(TrackingError, match="only for models of its own user"):
            store.add_model_version(model, f"done-{trial}")
    with pytest.raises(TrackingError, match="may not call delete_model"):
        store.delete_model("m")
    with pytest.raises(TrackingError, match="only for its own run"):
        store.set_trial_progress(SISTER, 1, 0.5)
