"""Make the pictures of the documentation from real runs.

``python plugins/server/tests/browser/screenshots.py [DIRECTORY]``

Trains the digits examples in a temporary DET_HOME, which takes some minutes, and takes pictures of the pages. With
DET_HOME set, takes them of what is there.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from playwright.sync_api import Browser, sync_playwright

ROOT = Path(__file__).parents[4]
EXAMPLES = ROOT / "examples" / "digits_pytorch"
DET = [sys.executable, "-m", "det_core.cli"]


class Picture(NamedTuple):
    """Page, window and cursor of a picture.

    Args:
        path: the page.
        width: of the window.
        height: of the window.
        scheme: the colour scheme.
        cursor: where the cursor is, whose section is at the top.
        clicks: whether it is clicked there.
    """

    path: str
    width: int
    height: int
    scheme: str
    cursor: str = ""
    clicks: bool = False


PICTURES = {
    "experiments": Picture("/experiments", 1280, 600, "light"),
    "groups": Picture(
        "/experiments?columns=lr,hidden,accuracy,trials,took&order=accuracy&reverse=1&group=project",
        1280,
        760,
        "light",
    ),
    "filtered": Picture(
        "/experiments/{search}?where=lr+%3C+0.1+and+accuracy+%3E+0.9&columns=lr,hidden,accuracy#trials",
        1280,
        420,
        "light",
    ),
    "bulk": Picture("/experiments/confirm?action=archive&experiments={all}", 1280, 380, "dark"),
    "experiment": Picture("/experiments/{search}?axis=epoch&log=1", 1280, 900, "light", "#curves .u-over"),
    "search": Picture("/experiments/{search}/search", 1280, 920, "light"),
    "ranges": Picture(
        "/experiments/{search}/search?ranges=lr:0.005:0.1~dropout:0.1:0.35", 1280, 500, "light", ".ranges legend"
    ),
    "importance": Picture("/experiments/{search}/search?across=lr&up=hidden", 1280, 960, "light", "#importance td"),
    "compare": Picture("/compare?experiments={search}&best=4&step=180", 1280, 1180, "light"),
    "code": Picture("/compare/code?experiments={baseline},{search}", 1280, 480, "light"),
    "failed-trial": Picture("/trials/{failed}", 1280, 1190, "light"),
    "errors": Picture("/trials/{several}?level=ERROR&rank=1", 1280, 260, "dark", ".log"),
    "origin": Picture("/trials/{best}", 1280, 300, "light", "#origin summary", clicks=True),
    "narrow": Picture("/experiments", 390, 844, "dark", "[data-all]", clicks=True),
}
"""Pictures by name."""

WRONG = ["--config", "name=digits_negative_lr", "--config", "hyperparameters.lr=-1", "--config", "max_restarts=0"]
"""Options that make a run fail."""
SEARCH = [
    *("--config", "min_validation_period.epochs=1"),
    *("--config", "searcher.max_trials=30"),
    *("--config", "hyperparameters.hidden.vals=[32, 64, 128, -1]"),
    *("--config", "max_restarts=0"),
]
"""Options of a search in which some trials fail."""
REPORTING = """
import logging, math
import matplotlib.pyplot as plt
import numpy as np
from torch.utils.tensorboard import SummaryWriter
from det_core import core, get_cluster_info

logging.basicConfig(level=logging.INFO)
log = logging.getLogger("train")
lr = get_cluster_info().trial.hparams["lr"]
with core.init() as context:
    writer = SummaryWriter(str(context.train.get_tensorboard_path()))
    for operation in context.searcher.operations():
        for batch in range(1, operation.length + 1):
            loss = 2.3 * math.exp(-batch * lr)
            context.train.report_training_metrics(batch, {"loss": loss})
            if batch % 10 == 0:
                log.info("batch %d: loss %.4f", batch, loss)
                figure = plt.figure(figsize=(4, 3))
                plt.imshow(np.eye(5) * batch + np.random.rand(5, 5) * 8)
                writer.add_figure("confusion matrix", figure, batch)
                writer.add_histogram("layer1/weights", np.random.randn(1000) / batch, batch)
                table = "| class | found | missed |\\n|---|---|---|\\n| cat | 31 | 4 |\\n| dog | 28 | 7 |"
                writer.add_text("per class", table, batch)
                writer.flush()
            if lr > 0.5 and batch == 31:
                raise ValueError("the loss is not a number; lower the learning rate")
        context.train.report_validation_metrics(operation.length, {"loss": loss})
        operation.report_completed(loss)
"""
"""Script that reports through TensorBoard, and fails with a large learning rate."""
REPORTING_CONFIG = """
name: reports
entrypoint: python3 train.py
searcher: {name: single, metric: loss, max_length: {batches: 60}}
hyperparameters: {lr: 0.9}
max_restarts: 1
"""
LOGGING = """
import logging
from det_core import core

logging.basicConfig(level=logging.INFO)
log = logging.getLogger("data")
with core.init(distributed=core.DistributedContext.from_torch_distributed()) as context:
    is_chief = context.distributed.rank == 0
    for operation in context.searcher.operations():
        for batch in range(10, operation.length + 1, 10):
            log.info("batch %d", batch)
            if not is_chief and batch % 20 == 0:
                log.error("shard-%05d.tar has a record without a label, which is left out", batch)
        if is_chief:
            context.train.report_validation_metrics(operation.length, {"loss": 0.1})
            operation.report_completed(0.1)
"""
"""Script for two ranks, of which one logs errors and nothing fails."""
LOGGING_CONFIG = """
name: two ranks
entrypoint: python3 -m det_core.launch torch_distributed -- train.py
searcher: {name: single, metric: loss, max_length: {batches: 100}}
resources: {slots_per_trial: 2}
launcher: {type: local, slots: 2}
"""
REMOTE = "https://git.example.org/vision/digits.git"


def run(project: str, config: str, directory: Path, *options: str) -> None:
    """Run an experiment of a project."""
    named = ["--config", f"project={project}", "--config", "workspace=digits"]
    subprocess.run([*DET, "run", config, ".", *options, *named], cwd=directory, check=False, timeout=1800)


def train(directory: Path) -> None:
    """Run the experiments that the pictures show, from a directory that is empty.

    The search has a change of the model that is in no commit.
    """
    digits, profiled = directory / "digits", ("--config", "profiling.enabled=true")
    shutil.copytree(EXAMPLES, digits, ignore=shutil.ignore_patterns("__pycache__"))
    author = ("-c", "user.name=Ada", "-c", "user.email=ada@example.org")
    for command in (("init", "-q", "-b", "main"), ("remote", "add", "origin", REMOTE), ("add", ".")):
        subprocess.run(["git", *command], cwd=digits, check=True, timeout=60)
    subprocess.run(["git", *author, "commit", "-qm", "A small network"], cwd=digits, check=True, timeout=60)
    run("baseline", "const.yaml", digits, *profiled)
    model = digits / "model_def.py"
    model.write_text(model.read_text(encoding="utf-8").replace("torch.optim.Adam(", "torch.optim.AdamW("), "utf-8")
    run("search", "adaptive.yaml", digits, *profiled, *SEARCH)
    for _ in range(2):
        run("drafts", "const.yaml", digits, *WRONG)
    for project, script, config in (("ranks", LOGGING, LOGGING_CONFIG), ("reports", REPORTING, REPORTING_CONFIG)):
        files = directory / project
        files.mkdir()
        (files / "train.py").write_text(script, encoding="utf-8")
        (files / "config.yaml").write_text(config, encoding="utf-8")
        run(project, "config.yaml", files)


@contextlib.contextmanager
def server() -> Iterator[str]:
    """Run a server during the block, and yield its URL with the token."""
    process = subprocess.Popen([*DET, "server", "--port", "0", "--no-browser"], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout
        found = re.search(r"http://\S+", process.stdout.readline())
        assert found, "the server printed no URL"
        yield found[0]
    finally:
        process.terminate()
        process.wait(30)


def take(browser: Browser, link: str, ids: Mapping[str, object], directory: Path) -> None:
    """Take all pictures."""
    base = link.partition("/?")[0]
    for name, picture in PICTURES.items():
        size = {"width": picture.width, "height": picture.height}
        context = browser.new_context(viewport=size, color_scheme=picture.scheme)  # type: ignore[arg-type]
        page = context.new_page()
        page.goto(link)
        page.goto(base + picture.path.format(**ids), wait_until="load")
        page.wait_for_timeout(1500)
        if picture.cursor:
            place = page.locator(picture.cursor).first
            place.wait_for(timeout=60_000)
            place.evaluate("(one) => one.closest('section')?.scrollIntoView()")
            place.click() if picture.clicks else place.hover()
        page.screenshot(path=directory / f"server-{name}.png")
        context.close()


def main() -> None:
    """Train unless DET_HOME is set, then take the pictures."""
    directory = Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "docs" / "_static")
    with contextlib.ExitStack() as stack:
        if "DET_HOME" not in os.environ:
            os.environ["DET_HOME"] = stack.enter_context(tempfile.TemporaryDirectory())
            train(Path(stack.enter_context(tempfile.TemporaryDirectory())))
        from det_core.interfaces.records import State, TrialOrder
        from det_core.tracking import open_store

        with open_store() as store:
            experiments = {one.config["project"]: one.id for one in store.experiments()}
            search = experiments["search"]
            failed = store.trials(experiments["reports"], states=[State.ERROR])[-1].id
            several = store.trials(experiments["ranks"])[0].id
            every = ",".join(str(one.id) for one in store.experiments())
            best = store.trial_results(search, order=TrialOrder.BEST, limit=1)[0].trial.id
        link = stack.enter_context(server())
        playwright = stack.enter_context(sync_playwright())
        browser = playwright.chromium.launch(
            executable_path="/usr/bin/chromium", args=["--no-sandbox", "--disable-dev-shm-usage"]
        )
        stack.callback(browser.close)
        ids = {**experiments, "best": best, "failed": failed, "several": several, "all": every}
        take(browser, link, ids, directory)


if __name__ == "__main__":
    main()
