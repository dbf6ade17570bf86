"""Documented signatures, on which existing scripts rely."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

import det_core
from det_core import experimental
from det_core.experimental import ModelOrderBy, ModelSortBy, client

DOCUMENTED = {
    "create": "(trial_def, config=None, local=False, test=False, context_dir='', command=None, master_url=None)",
    "create_trial_instance": "(trial_def, checkpoint_dir, config=None, hparams=None)",
    "Determined": "(master=None, user=None)",
    "Determined.get_experiment": "(self, experiment_id)",
    "Determined.get_trial": "(self, trial_id)",
    "Determined.get_checkpoint": "(self, uuid)",
    "Determined.create_model": "(self, name, description='', metadata=None)",
    "Determined.get_model": "(self, name)",
    "Determined.get_models": "(self, sort_by=<ModelSortBy.NAME: 1>, order_by=<ModelOrderBy.ASCENDING: 1>, name='', "
    "description='')",
    "Model": "(name, description='', creation_time=None, last_updated_time=None, metadata=None, master='')",
    "Model.get_version": "(self, version=0)",
    "Model.get_versions": "(self, order_by=<ModelOrderBy.DESCENDING: 2>)",
    "Model.register_version": "(self, checkpoint_uuid)",
    "Model.add_metadata": "(self, metadata)",
    "Model.remove_metadata": "(self, keys)",
    "ExperimentReference": "(experiment_id, master)",
    "ExperimentReference.top_checkpoint": "(self, sort_by=None, smaller_is_better=None)",
    "ExperimentReference.top_n_checkpoints": "(self, limit, sort_by=None, smaller_is_better=None)",
    "TrialReference": "(trial_id, master)",
    "TrialReference.top_checkpoint": "(self, sort_by=None, smaller_is_better=None)",
    "TrialReference.select_checkpoint": "(self, latest=False, best=False, uuid=None, sort_by=None, "
    "smaller_is_better=None)",
    "Checkpoint": "(uuid, experiment_config, experiment_id, trial_id, hparams, batch_number, start_time, end_time, "
    "resources, validation, determined_version=None, framework=None, format=None, model_version=None, model_name=None, "
    "metadata=None, master=None)",
    "Checkpoint.download": "(self, path=None)",
    "Checkpoint.load": "(self, path=None, tags=None, **kwargs)",
    "Checkpoint.add_metadata": "(self, metadata)",
    "Checkpoint.remove_metadata": "(self, keys)",
    "Checkpoint.load_from_path": "(path, tags=None, **kwargs)",
}
"""Names mapped to signatures without types."""


def plain(function: Any) -> str:
    signature = inspect.signature(function)
    bare = [one.replace(annotation=inspect.Parameter.empty) for one in signature.parameters.values()]
    return str(signature.replace(parameters=bare, return_annotation=inspect.Signature.empty))


@pytest.mark.parametrize("name", DOCUMENTED)
def test_every_documented_signature_is_kept(name: str) -> None:
    found: Any = experimental
    for part in name.split("."):
        found = getattr(found, part)
    assert plain(found) == DOCUMENTED[name]


def test_the_enums_have_the_documented_numbers() -> None:
    assert (ModelSortBy.NAME.value, ModelOrderBy.ASCENDING.value, ModelOrderBy.DESCENDING.value) == (1, 1, 2)


def test_the_package_exports_documented_names_only() -> None:
    assert det_core.experimental is experimental
    assert {name for name in vars(experimental) if name[0] != "_"} - set(experimental.__all__) == {"annotations"}
    assert all(getattr(experimental, name).__doc__ for name in experimental.__all__)


def test_the_client_has_every_method_of_determined() -> None:
    names = [name.partition(".")[2] for name in DOCUMENTED if name.startswith("Determined.")]
    later = ["create_experiment", "list_experiments", "list_models", "iter_trials_metrics"]
    for name in [*names, *later]:
        own = plain(getattr(client, name))
        assert own == plain(getattr(experimental.Determined, name)).replace("(self, ", "(").replace("(self)", "()")
        assert name in dir(client)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = client.nonsense
