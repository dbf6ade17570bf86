"""Commits of the code of trials, and the machines and packages with which they ran."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from det_core.interfaces.records import TrialRecord
from det_core.text import code_facts, machine_facts

if TYPE_CHECKING:
    from det_core.interfaces.tracking import TrackingStore


@dataclass(frozen=True)
class Origin:
    """What a trial ran with.

    Args:
        code: facts about the commit of its code, by name.
        machine: facts about the machine of the chief in its newest run.
        packages: versions of the packages there.
    """

    code: Mapping[str, str]
    machine: Mapping[str, str]
    packages: Mapping[str, str]


def origins_of(store: TrackingStore, trials: Sequence[TrialRecord]) -> dict[int, Origin]:
    """Return what each trial ran with, as far as it is recorded."""
    versions = store.code_versions({trial.experiment_id for trial in trials})
    machines = store.newest_machines([trial.id for trial in trials])
    code = {experiment_id: code_facts(version) for experiment_id, version in versions.items()}
    return {
        trial.id: Origin(
            code.get(trial.experiment_id, {}),
            machine_facts(machine) if (machine := machines.get(trial.id)) else {},
            machine.packages if machine else {},
        )
        for trial in trials
    }
