"""Comparisons of trials: their values, their differences, and their report."""

from __future__ import annotations

import base64
import hashlib
import io
import math
import random
import re
import subprocess
import sys
import tarfile
import time
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timezone
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from det_server._curve_picture import draw_curves
from det_server.pages import _code_diff
from det_server.pages._code_diff import Budget, DiffLine, diff_archives, find_edits

from det_core.cli import main
from det_core.interfaces.records import CodeVersion, Machine, MetricsReport
from det_core.interfaces.secrets import MASK, REFERENCE_PREFIX
from det_core.interfaces.tracking import TrackingStore

from .seeded_store import HOSTILE
from .serving import ServedSite


def add_trial(
    store: TrackingStore,
    experiment: int,
    reports: Mapping[int, Mapping[str, Any]],
    hyperparameters: Mapping[str, Any] | None = None,
) -> int:
    """Record a trial with validations, and return its id."""
    trial = store.create_trial(experiment, hparams=dict(hyperparameters or {}), seed=1).id
    run = store.start_run(trial, allocation_id=f"a{trial}").run_id
    store.report_metrics(
        [
            MetricsReport(trial_id=trial, run_id=run, group="validation", steps_completed=step, metrics=dict(metrics))
            for step, metrics in reports.items()
        ]
    )
    return trial


def add_experiment(store: TrackingStore, name: str = "x", **more: Any) -> int:
    searcher = {"metric": "accuracy", "smaller_is_better": False}
    return store.create_experiment(config={"name": name, "searcher": searcher, **more}).id


def rows(page: str) -> dict[str, list[str]]:
    """Return the texts of the cells of the table by the text of the first one."""
    found = {}
    for row in re.findall(r"<tr[^>]*>(.*?)</tr>", page, re.DOTALL):
        texts = [
            " ".join(re.sub(r"<[^>]*>", " ", cell).split())
            for cell in re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.DOTALL)
        ]
        found[texts[0]] = texts[1:]
    return found


def test_metrics_have_final_and_best_values_and_those_at_a_step(local: ServedSite) -> None:
    store = local.store
    experiment = add_experiment(store)
    first = add_trial(
        store,
        experiment,
        {100: {"accuracy": 0.5, "odd": 1}, 200: {"accuracy": 0.75, "odd": 3}, 300: {"accuracy": 0.625}},
    )
    second = add_trial(store, experiment, {90: {"accuracy": 0.25}, 190: {"accuracy": math.nan}})
    table = rows(local.owner.get(f"/compare?trials={first},{second}&step=200").text)
    assert table["validation.accuracy final"] == ["0.6250 at 300", "NaN at 190"]
    assert table["validation.accuracy best"] == ["0.7500", "0.2500"]
    assert table["validation.accuracy at batch 200, or the last before"] == ["0.7500", "NaN at 190"]
    assert table["validation.odd least"] == ["1.000", "–"]  # noqa: RUF001
    assert table["validation.odd greatest"] == ["3.000", "–"]  # noqa: RUF001
    page = local.owner.get(f"/compare?trials={first},{second}&names=odd").text
    assert "validation.odd final" in rows(page) and "validation.accuracy final" not in rows(page)
    assert "No metric has &#39;zz&#39; in its name." in local.owner.get(f"/compare?trials={first}&names=zz").text


def test_rows_that_differ_are_shown_alone(local: ServedSite) -> None:
    store = local.store
    experiment = add_experiment(store)
    for lr in (0.1, 0.2):
        add_trial(store, experiment, {1: {"accuracy": 0.5}}, {"width": 8, "lr": lr})
    table = rows(local.owner.get("/compare?trials=1,2").text)
    assert list(table).index("lr") < list(table).index("width")
    alone = rows(local.owner.get("/compare?trials=1,2&differ=1").text)
    assert alone["lr"] == ["0.1", "0.2"]
    assert "width" not in alone and "validation.accuracy final" not in alone


def test_commits_machines_and_packages_are_compared(local: ServedSite, tmp_path: Path) -> None:
    """Packages of the same version are left out, as are trials without a machine from none."""
    store = local.store
    for number, commit in enumerate("abc"):
        version = CodeVersion(commit=commit * 40, branch=HOSTILE, is_changed=number == 1)
        experiment = store.create_experiment(config={}, code_version=version if number < 2 else None).id
        trial = add_trial(store, experiment, {})
        packages = {"torch": f"2.{number}", "numpy": "1.26", HOSTILE: str(number)}
        if number < 2:
            store.record_machine(trial, 1, Machine(host=HOSTILE, cpus=8, python="3.11", packages=packages))
    page = local.owner.get("/compare?trials=1,2,3").text
    table = rows(page)
    assert (table["commit"], table["changed since"]) == (["a" * 40, "b" * 40, "–"], ["no", "yes", "–"])  # noqa: RUF001
    assert (table["CPUs"], table["Python"]) == (["8", "8", "–"], ["3.11", "3.11", "–"])  # noqa: RUF001
    assert table["torch"] == ["2.0", "2.1", "–"]  # noqa: RUF001
    both = rows(local.owner.get("/compare?trials=1,2").text)
    assert "numpy" not in both and both["torch"] == ["2.0", "2.1"]
    assert main(["compare", "1", "2", "-o", str(tmp_path / "report.html")]) == 0
    assert rows((tmp_path / "report.html").read_text())["torch"] == ["2.0", "2.1"]
    assert HOSTILE not in page


def test_the_best_trials_of_experiments_are_compared(local: ServedSite) -> None:
    store = local.store
    one, other = add_experiment(store, "one"), add_experiment(store, HOSTILE)
    ids = [
        add_trial(store, experiment, {1: {"accuracy": value}})
        for experiment, value in ((one, 0.1), (one, 0.2), (other, 0.3))
    ]
    client = local.owner
    page = client.get(f"/compare?experiments={one}&experiments={other}&trials={ids[0]}&trials=").text
    assert rows(page)["experiment"][:1] == ["one"]
    assert f'value="{ids[0]},{ids[1]},{ids[2]}"' in page
    assert f'value="{ids[1]},{ids[0]}"' in client.get(f"/compare?experiments={one}&best=2").text
    missing = client.get(f"/compare?experiments=77,{one}&trials=88").text
    assert "There is no experiment 77." in missing and "There is no trial 88." in missing
    many = ",".join(map(str, range(1, 102)))
    assert "Only the first 100 experiments are looked at." in client.get(f"/compare?experiments={many}").text
    source = re.search(r'data-src="([^"]+)"', page)
    assert source
    labels = [one["label"] for one in client.get(source[1].replace("&amp;", "&")).json["series"]]
    assert labels == ["trial 1, one", "trial 2, one", f"trial 3, {HOSTILE}"]


@pytest.mark.parametrize("path", ["/compare?", "/data/curves?experiments=1&", "/data/curves?axis=epoch&"])
def test_an_experiment_may_be_deleted_while_its_trials_are_compared(
    local: ServedSite, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    store = local.store
    kept, deleted = add_experiment(store), add_experiment(store, "y")
    trials = [add_trial(store, one, {1: {"accuracy": 0.5}}) for one in (kept, deleted)]
    read = store.experiments_by_id

    def read_late(experiment_ids: Collection[int], **options: Any) -> Any:
        if deleted in experiment_ids:
            store.delete_experiment(deleted)
        return read(experiment_ids, **options)

    monkeypatch.setattr(store, "experiments_by_id", read_late)
    answer = local.owner.get(f"{path}trials={trials[0]},{trials[1]}&group=validation&metric=accuracy")
    assert answer.status == 200 and read([deleted]) == []
    if path.startswith("/compare"):
        assert f"There is no trial {trials[1]}." in answer.text


def test_ids_are_separated_by_commas_or_spaces(local: ServedSite) -> None:
    experiment = add_experiment(local.store)
    for _ in range(12):
        add_trial(local.store, experiment, {1: {"accuracy": 0.5}})
    for text in ("1+2", "1,+2", "+1%0A2,", "1&trials=2&trials="):
        assert 'value="1,2"' in local.owner.get(f"/compare?trials={text}").text, text


def test_trials_are_left_out_by_a_link(local: ServedSite) -> None:
    experiment = add_experiment(local.store)
    for _ in range(3):
        add_trial(local.store, experiment, {1: {"accuracy": 0.5}})
    page = local.owner.get("/compare?trials=1,2,3&step=5&names=acc").text
    assert re.search(r'href="/compare\?names=acc&amp;step=5&amp;trials=1%2C3" aria-label="leave out trial 2"', page)


def archive(files: Mapping[str, str | bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as written:
        for name, text in files.items():
            content = text.encode() if isinstance(text, str) else text
            member = tarfile.TarInfo(name)
            member.size = len(content)
            written.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def apply(edits: Sequence[DiffLine], omitted: str) -> list[str]:
    return [line.text for line in edits if line.mark != omitted]


@pytest.mark.parametrize("seed", range(30))
def test_edits_lead_from_one_text_to_the_other_and_are_the_fewest(seed: int) -> None:
    chosen = random.Random(seed)
    old, new = ([chosen.choice("abcd") for _ in range(chosen.randrange(14))] for _ in range(2))
    edits = find_edits(old, new, Budget())
    assert edits is not None
    assert apply(edits, "+") == old
    assert apply(edits, "-") == new
    assert sum(line.mark == " " for line in edits) == _longest_common(old, new)


def _longest_common(old: Sequence[str], new: Sequence[str]) -> int:
    lengths = [0] * (len(new) + 1)
    for line in old:
        before = lengths[:]
        for j, other in enumerate(new):
            lengths[j + 1] = before[j] + 1 if line == other else max(before[j + 1], lengths[j])
    return lengths[-1]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (["a", "b"] * 20_000, ["b", "a", "a"] * 13_000),
        ([str(n % 101) for n in range(40_000)], [str(n % 103) for n in range(40_000)]),
        (["x"] * 40_000, ["y"] * 40_000),
        ([str(n) for n in range(40_000)], [str(n) for n in reversed(range(40_000))]),
    ],
    ids=["repeated", "periodic", "different", "reversed"],
)
def test_texts_that_are_hard_to_compare_take_limited_work(old: list[str], new: list[str]) -> None:
    budget = Budget()
    begin = time.process_time()
    assert find_edits(old, new, budget) is None
    assert time.process_time() - begin < 10
    assert budget.steps > -200_000


@pytest.mark.parametrize("seed", range(20))
def test_lines_that_are_equal_at_both_ends_change_no_difference(seed: int) -> None:
    chosen = random.Random(seed)
    ends = [[chosen.choice("ab") for _ in range(chosen.randrange(9))] for _ in range(2)]
    old, new = (ends[0] + [chosen.choice("ab") for _ in range(chosen.randrange(5))] + ends[1] for _ in range(2))
    contents = [{"a": "\n".join(lines).encode()} for lines in (old, new)]
    shown = _code_diff._change("a", "changed", contents, Budget()).lines
    positions = [0, 0]
    for line in shown:
        if line.mark == "@":
            positions = [int(number) - 1 for number in re.findall(r"\d+", line.text)]
        for i, (lines, omitted) in enumerate([(old, "+"), (new, "-")]):
            if line.mark not in ("@", omitted):
                assert lines[positions[i]] == line.text
                positions[i] += 1
    assert sum(line.mark == "+" for line in shown) == len(new) - _longest_common(old, new)


def test_only_the_lines_around_a_difference_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    monkeypatch.setattr(_code_diff, "find_edits", lambda *args: seen.extend(map(len, args[:2])) or find_edits(*args))
    old, new = ("\n" * 90_000 + f"{number}\n" + "\n" * 90_000 for number in range(2))
    (change,) = diff_archives(archive({"a": old}), archive({"a": new}), Budget()).changes
    assert [(line.mark, line.text) for line in change.lines if line.text] == [
        ("@", "line 89998 → line 89998"),
        ("-", "0"),
        ("+", "1"),
    ]
    assert seen == [1, 1]
    added = diff_archives(archive({}), archive({"a": new}), Budget()).changes
    assert added[0].note == "Only 5000 lines of differences are shown."
    assert len(seen) == 2


def test_code_is_compared_until_a_deadline() -> None:
    old, new = archive({"a": "1"}), archive({"a": "2"})
    assert diff_archives(old, new, Budget(deadline=0)).error.startswith("To read and to compare the files takes more")
    late = Budget(deadline=0)
    assert _code_diff._change("a", "changed", [{"a": b"1"}, {"a": b"2"}], late).note == _code_diff._TOO_LONG
    with pytest.raises(_code_diff._TooLongError):
        _code_diff._digests(old, late)


def test_code_of_experiments_is_compared(local: ServedSite) -> None:
    long = "".join(f"line {n}\n" for n in range(100))
    old = archive({"same.py": "1\n", "gone.py": "x = 1\n", "long.py": long, "data.bin": b"\0\1", "big": "a" * 10**6})
    changed = long.replace("line 50\n", f"{HOSTILE}\n")
    new = archive(
        {"same.py": "1\n", "new.py": "y = 2\n", "long.py": changed, "data.bin": b"\0\2", "big": "b" * 300_000}
    )
    store = local.store
    ids = [store.create_experiment(config={"name": "x"}, model_definition=code).id for code in (old, new, old)]
    page = local.owner.get(f"/compare/code?experiments={ids[0]},{ids[1]}")
    assert page.status == 200
    text = page.text
    for name, kind in (("gone.py", "removed"), ("new.py", "added"), ("long.py", "changed"), ("data.bin", "changed")):
        assert re.search(rf"{name}\s*<span class=.note.>{kind}", text), name
    assert "same.py" not in text and "This file is not text." in text and "Only files of up to 200 kB" in text
    assert "line 48 → line 48" in text and "line 46" not in text
    assert HOSTILE not in text and "&lt;img src=x onerror=alert(1)&gt;" in text
    assert "The code is the same." in local.owner.get(f"/compare/code?experiments={ids[0]},{ids[2]}").text
    assert local.owner.get(f"/compare/code?experiments={ids[0]},999").status == 404
    assert "expected two experiments or more" in local.owner.get(f"/compare/code?experiments={ids[0]}").text


def test_damaged_and_missing_code_is_compared(local: ServedSite) -> None:
    code = archive({"a.py": "1\n"})
    ids = [local.store.create_experiment(config={}, model_definition=one).id for one in (code, b"x", b"")]
    page = local.owner.get(f"/compare/code?experiments={','.join(map(str, ids))}").text
    assert "An archive is damaged" in page
    assert re.search(r"a.py\s*<span class=.note.>removed", page)


def test_files_that_claim_any_size_are_not_read(local: ServedSite) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as written:
        member = tarfile.TarInfo("a.py")
        member.type = tarfile.GNUTYPE_SPARSE
        written.addfile(member)
    codes = archive({"a.py": "1"}), buffer.getvalue()
    ids = [local.store.create_experiment(config={}, model_definition=one).id for one in codes]
    page = local.owner.get(f"/compare/code?experiments={ids[0]},{ids[1]}").text
    assert "An archive is damaged: it has a sparse file" in page


def test_configs_are_compared_by_key(local: ServedSite) -> None:
    store = local.store
    one = add_experiment(store, "one", optimizer={"name": "adam"}, slots=1)
    other = add_experiment(store, "other", optimizer={"name": "sgd"}, slots=1)
    for experiment in (one, other):
        add_trial(store, experiment, {1: {"accuracy": 0.5}})
    page = local.owner.get("/compare?trials=1,2").text
    table = rows(page)
    assert table["optimizer.name"] == ["adam", "sgd"]
    assert table["slots"] == ["1"]
    assert f'href="/compare/code?experiments={one}%2C{other}"' in page
    assert "optimizer.name" not in rows(local.owner.get("/compare?trials=1").text)


class HtmlUse(HTMLParser):
    """Names of elements and attributes in a document."""

    def __init__(self) -> None:
        super().__init__()
        self.elements: set[str] = set()
        self.attributes: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.add(tag)
        self.attributes |= {name for name, _ in attrs}


def check_report(text: str) -> None:
    """Check that a report is one file that loads nothing and runs nothing."""
    policy = re.search(r'http-equiv="Content-Security-Policy" content="([^"]+)"', text)
    style = re.search(r"<style>(.*?)</style>", text, re.DOTALL)
    assert policy and style
    digest = base64.b64encode(hashlib.sha256(style[1].encode()).digest()).decode()
    wanted = f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    assert policy[1].replace("&#39;", "'") == wanted
    used = HtmlUse()
    used.feed(text)
    assert not used.elements & {"script", "img", "link", "iframe", "object", "embed", "form", "a", "use"}
    assert not [one for one in used.attributes if one.startswith("on") or one in ("style", "src", "href")]
    assert "url(" not in style[1] and "@import" not in style[1]
    assert text.count("<style") == text.count("</style") == 1


def test_a_report_has_the_comparison_and_loads_nothing(local: ServedSite) -> None:
    store = local.store
    reference = f"{REFERENCE_PREFIX}{'0' * 32}"
    one = add_experiment(store, HOSTILE, storage={"key": reference})
    other = add_experiment(store, "</style><script>alert(1)</script>", storage={"key": "x"})
    hyperparameters = {HOSTILE: HOSTILE, "password": reference}
    ids = [
        add_trial(store, one, {100: {"accuracy": 0.5, HOSTILE: 1}, 200: {"accuracy": math.nan}}, hyperparameters),
        add_trial(store, other, {100: {"accuracy": 0.25}, 300: {"accuracy": 0.75}}),
    ]
    answer = local.owner.get(f"/compare/report.html?trials={ids[0]},{ids[1]}&step=150&axis=time&log=1")
    assert answer.status == 200
    assert answer.headers["Content-Disposition"] == 'attachment; filename="comparison.html"'
    check_report(answer.text)
    assert REFERENCE_PREFIX not in answer.text and MASK in answer.text
    table = rows(answer.text)
    assert table["validation.accuracy final"] == ["NaN at 200", "0.7500 at 300"]
    assert table["storage.key"] == [MASK, "x"]
    assert "from the records of\ntrials 1, 2 of\nexperiments 1" in answer.text
    assert answer.text.count('<g class="line') == 2
    assert local.owner.get("/compare/report.html?trials=999").status == 404


@pytest.mark.parametrize("year", [1, 9999])
def test_a_report_may_have_times_of_any_year(local: ServedSite, year: int) -> None:
    """The token of a run reports them, and a comparison has trials of several people."""
    trial = add_trial(local.store, add_experiment(local.store, "odd"), {})
    which = {"trial_id": trial, "run_id": 1, "group": "validation", "metrics": {"accuracy": 0.75}}
    odd = datetime(year, 1, 1, tzinfo=timezone.utc)
    local.store.report_metrics([MetricsReport(**which, steps_completed=200, time=odd)])  # type: ignore[arg-type]
    for axis in ("clock", "time"):
        assert local.owner.get(f"/compare/report.html?trials={trial}&axis={axis}").status == 200, axis


def test_the_command_writes_the_same_report(
    store: TrackingStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    experiments = [add_experiment(store, name) for name in ("one", "other")]
    for experiment in experiments:
        add_trial(store, experiment, {100: {"accuracy": 0.5}}, {"lr": experiment})
    file = tmp_path / "report.html"
    assert main(["compare", "--experiments", "1", "2", "--step", "100", "--differences", "-o", str(file)]) == 0
    assert capsys.readouterr().out == f"The comparison of 2 trials is in {file}\n"
    check_report(file.read_text())
    assert rows(file.read_text())["lr"] == ["1", "2"]
    assert main(["compare", "1", "--step", "0", "--metric", "accuracy", "-o", str(file)]) == 0
    unknown = "There are no curves of 'accuracy'; expected one of validation.accuracy."
    assert unknown in capsys.readouterr().out and "at batch 0" in file.read_text()
    assert main(["compare", "7", "-o", str(file)]) == 1
    assert "There is no trial 7. Give the ids of trials, or --experiments" in capsys.readouterr().err
    assert main(["compare", "1", "-o", str(tmp_path)]) == 1
    assert f"{tmp_path} cannot be written" in capsys.readouterr().err
    assert main(["compare", "x"]) == 2
    assert "expected a positive number, got 'x'" in capsys.readouterr().err


def test_curves_are_drawn_between_the_axes() -> None:
    gaps, wide = [(0, 1.0), (10, math.nan), (20, math.inf), (30, 4.0)], [(5, -1e308), (6, 1e308)]
    curves: dict[int, list[tuple[int, float]]] = {1: gaps, 2: wide, 3: [], 4: [(1, 2.0)]}
    for log in (False, True):
        picture = draw_curves(curves, log=log)
        numbers = [float(one) for line in picture.lines for one in re.findall(r"[\d.-]+", line.path)]
        assert numbers and all(0 <= one <= picture.width for one in numbers)
        assert [line.trial_id for line in picture.lines] == [1, 2, 4]
        assert picture.lines[0].crosses.count("M") == 1
        assert all(picture.left <= x <= picture.right for x, _ in picture.across)
    on_epochs = draw_curves({1: [(0, 1.0), (10, 2.0)], 2: [(0, 1.0)]}, {1: [(0, 0.0), (100, 4.0)]}, log=False)
    assert [line.trial_id for line in on_epochs.lines] == [1]
    assert on_epochs.across[-1][1] == pytest.approx(0.4)
    epochs = [(0, -1.7e308), (10, 1.7e308)]
    on_any = draw_curves({1: [(step, 1.0) for step in (0, 5, 10, 2**62)]}, {1: epochs}, log=False)
    assert on_any.lines[0].path.count("L") == 2 and all(math.isfinite(x) for x, _ in on_any.across)


@pytest.mark.integration
def test_the_command_runs_in_a_process_of_its_own() -> None:
    """Other tests have imported the pages before, in an order that works."""
    done = subprocess.run([sys.executable, "-m", "det_core.cli", "compare", "7"], capture_output=True, text=True)
    assert "det: error: There is no trial 7. Give the ids of trials" in done.stderr


@pytest.mark.parametrize("log", [False, True])
@pytest.mark.parametrize(
    "values", [[1.7e308], [-1.7e308, 1.7e308], [1e250], [0.0, 5e-324], [5e-324], [1.6, math.nextafter(1.6, 2)], [0.0]]
)
def test_curves_of_any_numbers_have_a_place(values: Sequence[float], log: bool) -> None:
    picture = draw_curves({1: list(enumerate(values))}, log=log)
    numbers = [float(one) for one in re.findall(r"[\d.-]+", picture.lines[0].path)]
    assert all(0 <= one <= picture.width for one in numbers)
    assert all(picture.top <= y <= picture.bottom and math.isfinite(value) for y, value in picture.up)
