"""The ``det config`` commands."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from det_core.cli._command_table import Parser, UsageError
from det_core.cli.commands.config import configure
from det_core.config import config_schema

HERE = Path(__file__).parent


def det_config(*argv: str) -> int:
    parser = Parser("det config")
    configure(parser)
    args = parser.parse_args(argv)
    code: int = args.run(args)
    return code


@pytest.fixture
def wrong(tmp_path: Path) -> str:
    path = tmp_path / "const.yaml"
    path.write_text("searcher: {name: single, metric: a, max_length: 1}\nnam: 1\nmax_restarts: x\n")
    return str(path)


def test_check_accepts_a_valid_config(capsys: pytest.CaptureFixture[str]) -> None:
    path = str(HERE / "examples" / "release_0_12.yaml")
    assert det_config("check", path) == 0
    first, *notices = capsys.readouterr().out.splitlines()
    assert first == f"{path}: ok"
    assert len(notices) == 3
    assert notices[-1] == f"{HERE / 'examples'} has no code to check; to check it, add its directory as DIR"


def test_check_applies_changes(capsys: pytest.CaptureFixture[str]) -> None:
    path = str(HERE / "examples" / "release_0_12.yaml")
    assert det_config("check", path, "--config", "max_restarts=x") == 2
    assert "max_restarts" in capsys.readouterr().err


def test_usage_errors_show_the_usage_of_the_command() -> None:
    with pytest.raises(UsageError) as caught:
        det_config("check", "const.yaml", "--no-such-option")
    first, usage, *_ = str(caught.value).splitlines()
    assert first == "unrecognized arguments: --no-such-option"
    assert usage.startswith("usage: det config check ")


def test_check_lists_all_problems(wrong: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert det_config("check", wrong) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == [
        f"{wrong}:2: nam: unknown key; did you mean 'name'?",
        f'{wrong}:3: max_restarts: got "x"; expected a whole number; write its digits without quotes',
    ]


def test_check_prints_json(wrong: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert det_config("check", "--json", wrong) == 2
    report = json.loads(capsys.readouterr().out)
    assert report["ok"] is False
    assert report["problems"][0] == {
        "file": wrong,
        "line": 2,
        "path": "nam",
        "message": "unknown key; did you mean 'name'?",
    }
    assert det_config("check", "--json", str(HERE / "examples" / "release_0_19.yaml")) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["ok"], report["problems"], len(report["notices"])) == (True, [], 2)


def test_check_reports_problems_of_the_code(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "model_def.py").write_text("import det_keras\nclass Mine(det_keras.TFKerasTrial): ...\n")
    config = tmp_path / "const.yaml"
    config.write_text(
        "entrypoint: model_def:Mine\nsearcher: {name: single, metric: a, max_length: {batches: 1}}\n"
        "resources: {slots_per_trial: 2}\ndistributed: {backend: torch_distributed}\n"
    )
    assert det_config("check", str(config)) == 2
    assert capsys.readouterr().err.startswith("resources.slots_per_trial: the trial's framework 'keras' can train on")


def test_check_reports_a_missing_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert det_config("check", "/nowhere/const.yaml") == 2
    assert capsys.readouterr().err.startswith("/nowhere/const.yaml: no such file")


def test_schema_is_printed_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert det_config("schema") == 0
    assert json.loads(capsys.readouterr().out) == json.loads(json.dumps(config_schema()))
