"""What is found in the code of an experiment before a worker starts."""

from __future__ import annotations

from pathlib import Path
from textwrap import dedent, indent
from typing import Any

import pytest

from det_core.config import parse_config
from det_core.errors import ConfigError
from det_core.runner import check_code

from .conftest import install_plugin

HEAD = "from det_torch import PyTorchTrial\n\n\nclass MyTrial(PyTorchTrial):\n"
TRIAL = HEAD + "    pass\n"


def check(directory: Path, entrypoint: Any = "model_def:MyTrial", **keys: Any) -> list[str]:
    searcher = {"name": "single", "metric": "loss", "max_length": {"batches": 1}}
    config = {"entrypoint": entrypoint, "searcher": searcher, "hyperparameters": {"learning_rate": 0.1}, **keys}
    return check_code(parse_config(config), directory)


def refusal(directory: Path, entrypoint: Any = "model_def:MyTrial", **keys: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        check(directory, entrypoint, **keys)
    return str(caught.value)


def write_trial(directory: Path, body: str, *, head: str = HEAD) -> None:
    (directory / "model_def.py").write_text(head + indent(dedent(body), "    "))


@pytest.mark.parametrize(
    ("entrypoint", "message"),
    [
        ("modl_def:MyTrial", "entrypoint: there is no module 'modl_def' in {}; did you mean 'model_def'?"),
        ("model_def:MyTrail", "entrypoint: model_def.py has no class 'MyTrail'; did you mean 'MyTrial'?"),
        ("model_def:Q", "entrypoint: model_def.py has no class 'Q'; it has: MyTrial"),
        ("nothing.like.it:T", "there is no module 'nothing.like.it' in {}; write it, or give the directory with"),
        ("ignored:MyTrial", "ignored.py exists, but .detignore excludes it"),
        ("python3 modl_def.py --lr 1", "entrypoint: there is no 'modl_def.py' in {}; did you mean 'model_def.py'?"),
        (["python3", "-u", "train.py"], "there is no 'train.py'"),
    ],
)
def test_a_wrong_entrypoint_is_refused(tmp_path: Path, entrypoint: Any, message: str) -> None:
    (tmp_path / ".detignore").write_text("ignored.py\n")
    for name in ("model_def.py", "ignored.py"):
        (tmp_path / name).write_text(TRIAL)
    assert message.format(tmp_path) in refusal(tmp_path, entrypoint)


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("class MyTrial(PyTorchTrial:\n", "model_def.py:1: syntax error"),
        ("\0", "model_def.py"),
        ("x = " + "-" * 200_000 + "1", "model_def.py"),
        ("x = 1" + "+1" * 200_000, "model_def.py"),
        ("x = 1\nclass MyTrial:\n    pass\n", "model_def.py:2: 'MyTrial' is not a trial; expected a class"),
    ],
)
def test_a_file_that_cannot_be_imported_is_refused(tmp_path: Path, code: str, message: str) -> None:
    (tmp_path / "model_def.py").write_text(code)
    assert message in refusal(tmp_path)


LOADER = "def build_training_data_loader(self):\n    return load(self.context.get_per_slot_batch_size())\n"


@pytest.mark.parametrize(
    ("size", "slots", "got"),
    [
        ("64", 1, "'64'"),
        (64.5, 1, "64.5"),
        (True, 1, "True"),
        (0, 1, "0"),
        (1, 2, "1"),
        ({"type": "categorical", "vals": [8, "16"]}, 1, "'16'"),
        ({"type": "int", "minval": 0, "maxval": 8}, 1, "0"),
        ({"type": "double", "minval": 8, "maxval": 16}, 1, "8.0"),
        ({"type": "log", "base": 2, "minval": 3, "maxval": 4}, 1, "8.0"),
        ({"nested": 8}, 1, "{'nested': "),
    ],
)
def test_a_batch_size_that_the_trial_cannot_divide_is_refused(tmp_path: Path, size: Any, slots: int, got: str) -> None:
    write_trial(tmp_path, LOADER)
    keys: dict[str, Any] = {"resources": {"slots_per_trial": slots}, "hyperparameters": {"global_batch_size": size}}
    expected = f"expected an integer of at least {slots}, which model_def.py:6 divides among the slots"
    message = refusal(tmp_path, **keys)
    assert f"hyperparameters.global_batch_size: got {got}" in message and expected in message
    write_trial(tmp_path, "def build_training_data_loader(self):\n    return load(hparams['global_batch_size'])\n")
    assert check(tmp_path, hyperparameters={"global_batch_size": size}) == []


def test_a_batch_size_that_the_trial_can_divide_is_accepted(tmp_path: Path) -> None:
    write_trial(tmp_path, LOADER)
    for size in (1, {"type": "int", "minval": 1, "maxval": 8}, {"type": "categorical", "vals": [8, 16]}):
        assert check(tmp_path, hyperparameters={"global_batch_size": size}) == []


@pytest.mark.parametrize(
    "code",
    [
        TRIAL,
        "from elsewhere import *\n",
        "from elsewhere import Other as MyTrial\n",
        "def __getattr__(name): ...\n",
        "globals()['MyTrial'] = make()\n",
        "if True:\n    MyTrial = make()\n",
        "try:\n    from a import MyTrial\nexcept ImportError:\n    MyTrial = None\n",
        "def make():\n    global MyTrial\n    MyTrial = 1\nmake()\n",
        "for MyTrial in classes: pass\n",
        "with make() as MyTrial: pass\n",
        "from det_core import experimental\nexperimental.create(Other)\n",
        "@register\nclass MyTrial: pass\n",
        "class MyTrial(metaclass=Meta): pass\n",
        f"x = 1{'+1' * 2000}\n{HEAD}    def __init__(self): y = 1{'+1' * 2000}\n",  # deeper than calls may be
    ],
)
def test_what_may_work_is_not_refused(tmp_path: Path, code: str) -> None:
    (tmp_path / "model_def.py").write_text(code)
    assert check(tmp_path) == []


@pytest.mark.parametrize(
    ("entrypoint", "keys"),
    [
        ("json:Trial", {}),
        ("pytest.fixtures:Trial", {}),
        ("made:Trial", {"environment": {"environment_variables": ["PYTHONPATH=/opt/lib"]}}),
        ("compiled:Trial", {}),
        ("cd code && python3 train.py", {}),
        ("python3 -m train", {}),
        ("python3 /opt/train.py", {}),
        ("python3 $SCRIPT.py", {}),
        ("./train.sh", {}),
    ],
)
def test_code_that_may_be_elsewhere_is_not_refused(tmp_path: Path, entrypoint: str, keys: dict[str, Any]) -> None:
    (tmp_path / "compiled.cpython-311-x86_64-linux-gnu.so").touch()
    assert check(tmp_path, entrypoint, **keys) == []


def test_packages_and_scripts_in_directories_are_found(tmp_path: Path) -> None:
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "trial.py").write_text(TRIAL)
    (tmp_path / "package" / "__init__.py").write_text("from .trial import MyTrial\n")
    assert check(tmp_path, "package.trial:MyTrial") == check(tmp_path, "package:MyTrial") == []
    assert check(tmp_path, "python3 ./package/trial.py --lr 0.1") == []
    assert "package/trial.py has no class 'Trial'" in refusal(tmp_path, "package.trial:Trial")


@pytest.mark.parametrize(
    "body",
    [
        "def __init__(self, context):\n    self.rate = context.get_hparam('rate')\n",
        "def __init__(self, context):\n    if context.get_hparam('rate') > 1:\n        pass\n",
        "def optimizer(self, model):\n    return Adam(model, lr=self.context.get_hparam('rate'))\n",
        "def optimizer(self, model):\n    return Adam(model, lr=self.context.get_hparams()['rate'])\n",
        "def build_model(self):\n    self.pair = 1, self.context.get_hparam('rate')\n",
    ],
)
def test_a_hyperparameter_that_is_certainly_read_must_exist(tmp_path: Path, body: str) -> None:
    write_trial(tmp_path, body)
    message = refusal(tmp_path)
    assert message.startswith(
        "model_def.py:6: the code reads the hyperparameter 'rate', which the config does not have"
    )
    assert message.endswith("add it under hyperparameters")
    assert (
        check(tmp_path, hyperparameters={"rate": {"type": "double", "minval": 0, "maxval": 1}, "learning_rate": 1})
        == []
    )


@pytest.mark.parametrize(
    "body",
    [
        "def helper(self):\n    return self.context.get_hparam('rate')\n",
        "def __init__(self, context):\n    if context.debug:\n        context.get_hparam('rate')\n",
        "def __init__(self, context):\n    if not context:\n        return\n    context.get_hparam('rate')\n",
        "def __init__(self, context):\n    try:\n        context.get_hparam('rate')\n    except ValueError: pass\n",
        "def __init__(self, context):\n    self.rate = lambda: context.get_hparam('rate')\n",
        "def __init__(self, context):\n    self.rate = context.debug and context.get_hparam('rate')\n",
        "def __init__(self, context):\n    self.rate = context.get_hparam('rate') if context else 1\n",
        "def __init__(self, context):\n    hparams = context.get_hparams()\n    self.rate = hparams['rate']\n",
        "@skip\ndef __init__(self, context):\n    context.get_hparam('rate')\n",
    ],
)
def test_a_hyperparameter_that_may_be_read_is_a_notice(tmp_path: Path, body: str) -> None:
    write_trial(tmp_path, body)
    [notice] = check(tmp_path)
    assert "the code reads the hyperparameter 'rate'" in notice


@pytest.mark.parametrize(
    "body",
    [
        "def __init__(self, context):\n    hparams = context.get_hparams()\n    hparams.get('rate', 1)\n",
        "def __init__(self, context):\n    hparams = {}\n    hparams['rate'] = 1\n    hparams['rate']\n",
        "def __init__(self, context):\n    hparams.setdefault('rate', 1)\n    hparams['rate']\n",
        "def __init__(self, context):\n    context.get_hparam(self.name)\n    other.get_hparam('rate')\n",
    ],
)
def test_other_code_is_left_alone(tmp_path: Path, body: str) -> None:
    write_trial(tmp_path, body)
    assert check(tmp_path) == []


def test_the_batch_size_is_a_hyperparameter(tmp_path: Path) -> None:
    write_trial(
        tmp_path, "def build_training_data_loader(self):\n    return L(self.context.get_per_slot_batch_size())\n"
    )
    assert "'global_batch_size'" in refusal(tmp_path)


def test_a_custom_search_may_choose_other_hyperparameters(tmp_path: Path) -> None:
    write_trial(tmp_path, "def __init__(self, context):\n    context.get_hparam('rate')\n")
    searcher = {"name": "custom", "metric": "loss", "unit": "batches", "method": "search:Mine"}
    assert len(check(tmp_path, searcher=searcher)) == 1


def test_local_modules_and_scripts_give_notices(tmp_path: Path) -> None:
    (tmp_path / "helper.py").write_text("def make(context):\n    return context.get_hparam('learnin_rate')\n")
    (tmp_path / "unused.py").write_text("context.get_hparam('other')\n")
    (tmp_path / "model_def.py").write_text(f"import helper\n{TRIAL}")
    (tmp_path / "train.py").write_text("import helper\nprint(info.trial.hparams['rate'])\n")
    [notice] = check(tmp_path)
    assert notice.startswith("helper.py:2: ") and "did you mean 'learning_rate'?" in notice
    assert [one.partition(": ")[0] for one in check(tmp_path, "python3 train.py")] == ["train.py:2", "helper.py:2"]


@pytest.mark.parametrize(
    "example", sorted(Path(__file__).parents[2].glob("examples/*/const.yaml")), ids=lambda p: p.parent.name
)
def test_examples_have_no_findings(example: Path) -> None:
    from det_core.config import load_config

    assert check_code(load_config(example), example.parent) == []


DESCENT = Path(__file__).parents[2] / "examples" / "framework_plugin" / "det_descent.py"
TWO_SLOTS = {"resources": {"slots_per_trial": 2}}
BASE = "from det_descent import DescentTrial\n\n\nclass Base(DescentTrial):\n    pass\n"


@pytest.fixture
def descent(plugin_site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Install a framework that no backend adapts."""
    install_plugin(plugin_site, DESCENT, monkeypatch)


@pytest.mark.usefixtures("descent")
@pytest.mark.parametrize(
    "code",
    [
        "from det_descent import DescentTrial\nclass MyTrial(DescentTrial): ...\n",
        "import det_descent as d\nclass MyTrial(d.DescentTrial): ...\n",
        "try:\n    from base import Base as B\nexcept ImportError:\n    raise\nclass MyTrial(B): ...\n",
        "from package.trial import Base\nclass MyTrial(Base): ...\n",
        "from base import Base as MyTrial\n",
    ],
    ids=["imported", "attribute", "own base", "relative import", "own module"],
)
def test_several_slots_need_a_framework_that_can_use_them(tmp_path: Path, code: str) -> None:
    (tmp_path / "base.py").write_text(BASE)
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "trial.py").write_text("from .base import Base\n")
    (tmp_path / "package" / "base.py").write_text(BASE)
    (tmp_path / "model_def.py").write_text(code)
    told = refusal(tmp_path, **TWO_SLOTS, distributed={"backend": "torch_distributed"})
    assert told == (
        "resources.slots_per_trial: the trial's framework 'descent' can train on several slots only with a distributed "
        "backend that adapts it, unlike torch_distributed; "
        "set resources: {slots_per_trial: 1} without distributed.backend"
    )
    assert "'descent' can train on several slots only" in refusal(tmp_path, **TWO_SLOTS)
    assert check(tmp_path, resources={"slots_per_trial": 1}) == []


@pytest.mark.parametrize(
    "code",
    [
        "import det_keras\nclass MyTrial(det_keras.TFKerasTrial): ...\n",
        "from determined.keras import TFKerasTrial\nclass MyTrial(TFKerasTrial): ...\n",
        "from determined import keras\nclass MyTrial(keras.TFKerasTrial): ...\n",
        "import determined.keras as det\nclass MyTrial(det.TFKerasTrial): ...\n",
    ],
    ids=["new name", "old name", "old module", "renamed module"],
)
def test_a_backend_without_an_adapter_is_refused_with_one_that_has_it(tmp_path: Path, code: str) -> None:
    (tmp_path / "model_def.py").write_text(code)
    told = refusal(tmp_path, **TWO_SLOTS, distributed={"backend": "torch_distributed"})
    assert "; set distributed: {backend: horovod} or resources: {slots_per_trial: 1} " in told
    assert check(tmp_path, **TWO_SLOTS) == check(tmp_path, **TWO_SLOTS, distributed={"backend": "horovod"}) == []


def test_a_framework_that_only_workers_have_is_not_refused(
    tmp_path: Path, plugin_site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, code = tmp_path / "det_far.py", tmp_path / "code"
    file.write_text(
        "import det_core\n@det_core.hookimpl\n"
        "def det_choose_framework(mro): return 'far' if 'far.Trial' in mro else None"
    )
    install_plugin(plugin_site, file, monkeypatch)
    code.mkdir()
    (code / "model_def.py").write_text("from far import Trial\nclass MyTrial(Trial): ...\n")
    assert check(code, **TWO_SLOTS) == []


@pytest.mark.usefixtures("descent")
@pytest.mark.parametrize(
    "code",
    [
        "from det_toy import ToyTrial\nclass MyTrial(ToyTrial): ...\n",
        "import det_descent\nclass MyTrial(make(det_descent.DescentTrial)): ...\n",
        "from nowhere import Base\nclass MyTrial(Base): ...\n",
        "from unreadable import Base\nclass MyTrial(Base): ...\n",
        "try: from det_descent import DescentTrial as B\nexcept ImportError: from det_toy import ToyTrial as B\n"
        "class MyTrial(B): ...\n",
    ],
    ids=["needs no adapter", "computed base", "unknown base", "unreadable base", "one of two bases"],
)
def test_a_framework_that_may_use_several_slots_is_not_refused(tmp_path: Path, code: str) -> None:
    (tmp_path / "model_def.py").write_text(code)
    (tmp_path / "unreadable.py").write_text("x = 1" + "+1" * 200_000)
    assert check(tmp_path, **TWO_SLOTS) == []


ELASTIC = {
    "resources": {"slots_per_trial": 4, "min_slots_per_trial": 2},
    "hyperparameters": {"global_batch_size": 32},
}


def test_an_elastic_trial_needs_a_framework_and_a_backend_that_change_their_size(tmp_path: Path) -> None:
    (tmp_path / "model_def.py").write_text("import det_keras\nclass MyTrial(det_keras.TFKerasTrial): ...\n")
    told = refusal(tmp_path, **ELASTIC, distributed={"backend": "horovod"})
    assert told.startswith(
        "resources.min_slots_per_trial: the trial's framework 'keras' cannot continue on another number of slots, "
    )
    assert told.endswith("; remove resources.min_slots_per_trial")
    (tmp_path / "model_def.py").write_text("import det_torch\nclass MyTrial(det_torch.PyTorchTrial): ...\n")
    for backend in ("torch_distributed", "deepspeed", "horovod"):
        assert check(tmp_path, **ELASTIC, distributed={"backend": backend}) == []
