"""SDK objects as text, as tables in notebooks, and as data frames."""

from __future__ import annotations

import sys

import pytest

from det_core.errors import DetError
from det_core.experimental import Determined, ExperimentReference, TrialReference
from det_core.interfaces.records import State

from ..cli.conftest import Record


def test_objects_show_what_they_are(trained: Record) -> None:
    det = Determined(user="ada")
    experiment = det.get_experiment(1)
    assert repr(det) == f"Determined(master={trained.store.url!r}, user='ada')"
    assert repr(experiment) == (
        "ExperimentReference(id=1, name='digits', state='COMPLETED', progress=1.0, best={'accuracy': 0.75})"
    )
    assert repr(experiment.list_trials()) == (
        "[TrialReference(id=1, experiment_id=1, state='COMPLETED', batches=300, "
        "hparams={'lr': 0.1, 'nested': {'depth': 2}}, best={'accuracy': 0.75})]"
    )
    assert repr(experiment.top_checkpoint()) == (
        "Checkpoint(uuid='best-one', trial_id=1, batch=200, validation={'accuracy': 0.75})"
    )
    model = det.create_model("line")
    version = model.register_version("best-one")
    assert repr(model) == "Model(name='line', versions=1)"
    assert repr(version) == (
        "ModelVersion(model='line', version=1, uuid='best-one', trial_id=1, batch=200, validation={'accuracy': 0.75})"
    )
    model.archive()
    assert repr(model) == "Model(name='line', versions=1, archived=True)"


def test_a_failed_experiment_shows_its_error(record: Record) -> None:
    record.end(State.ERROR, "ValueError: no luck")
    assert repr(Determined().get_experiment(1)).endswith("progress=0.0, error='ValueError: no luck')")


def test_objects_without_a_record_show_their_identity(trained: Record) -> None:
    url = trained.store.url
    assert [repr(ExperimentReference(9, url)), repr(TrialReference(9, url))] == [
        "ExperimentReference(id=9)",
        "TrialReference(id=9)",
    ]
    model = Determined().create_model("gone")
    model.delete()
    assert repr(model) == "Model(name='gone')"
    assert "<td" in model._repr_html_()


def test_no_password_is_shown(trained: Record) -> None:
    det = Determined(user="ada")
    det._master = "postgresql://ada:secret@host/runs"
    assert repr(det) == "Determined(master='postgresql://ada:***@host/runs', user='ada')"


def test_tables_in_notebooks_escape_what_users_wrote(trained: Record) -> None:
    trained.store.edit_experiment(1, name="<script>alert(1)</script>")
    html = Determined().get_experiment(1)._repr_html_()
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in html and "<script>" not in html
    assert ">state</th>" in html and ">COMPLETED</td>" in html


def test_reports_leave_out_their_batches(trained: Record) -> None:
    report = next(Determined().get_trial(1).iter_metrics("validation"))
    assert "batch_metrics" not in repr(report) and "{'accuracy': 0.5}" in repr(report)


def test_trials_are_a_data_frame(trained: Record) -> None:
    pytest.importorskip("pandas")
    trained.store.create_trial(1, hparams={"lr": 0.2}, seed=1)
    frame = Determined().get_experiment(1).trials_frame()
    assert frame[["hparams.lr", "hparams.nested.depth", "state"]].to_dict("list") == {
        "hparams.lr": [0.1, 0.2],
        "hparams.nested.depth": [2, pytest.approx(float("nan"), nan_ok=True)],
        "state": ["COMPLETED", "QUEUED"],
    }
    assert frame.loc[1, ["best", "best_at", "latest"]].tolist() == [0.75, 200, 0.7]
    assert frame["best"].idxmax() == 1
    trained.store.create_experiment(config={})
    assert list(Determined().get_experiment(2).trials_frame().index) == []


def test_metrics_are_a_data_frame(trained: Record) -> None:
    pytest.importorskip("pandas")
    experiment = Determined().get_experiment(1)
    trained.report(400, "other", group_size=1, time=2.0)
    frame = experiment.metrics_frame()
    assert frame["group"].value_counts().to_dict() == {"training": 3, "validation": 3, "other": 1}
    assert frame.dropna(subset="accuracy").set_index("steps_completed")["accuracy"].to_dict() == {
        100: 0.5,
        200: 0.75,
        300: 0.7,
    }
    assert (frame["metrics.time"].dropna().tolist(), frame["time"].notna().all()) == ([2.0], True)
    assert experiment.metrics_frame("validation").shape == (3, 6)
    assert list(experiment.metrics_frame("nothing").columns) == [
        "trial_id",
        "run_id",
        "group",
        "steps_completed",
        "time",
    ]


def test_data_frames_need_pandas(trained: Record, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    experiment = Determined().get_experiment(1)
    for make_frame in (experiment.trials_frame, experiment.metrics_frame, Determined().get_trial(1).metrics_frame):
        with pytest.raises(
            DetError, match=r"need pandas, which is not installed; type: .*pip install 'det-core\[pandas\]'"
        ):
            make_frame()


def test_watching_shows_validations_until_the_end(trained: Record, capsys: pytest.CaptureFixture[str]) -> None:
    assert Determined().get_experiment(1).watch(timeout=30) is State.COMPLETED
    assert capsys.readouterr().out.splitlines() == [
        f"trial 1: batch {step} validation accuracy={value}" for step, value in ((100, 0.5), (200, 0.75), (300, 0.7))
    ]
