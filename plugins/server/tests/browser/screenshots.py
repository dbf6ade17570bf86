"""Make the pictures of the documentation from real runs.

``python plugins/server/tests/browser/screenshots.py [DIRECTORY]``

Trains the digits examples in a temporary DET_HOME, which takes some minutes, and takes pictures of the pages. With
DET_HOME set, takes them of what is there.
"""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

ROOT = Path(__file__).parents[4]
EXAMPLES = ROOT / "examples" / "digits_pytorch"
DET = [sys.executable, "-m", "det_core.cli"]
PICTURES = {
    "experiments": ("/experiments", 1280, 420, "light", ""),
    "groups": (
        "/experiments?columns=lr,hidden,accuracy,trials,took&order=accuracy&reverse=1&group=project",
        1280,
        600,
        "light",
        "",
    ),
    "filtered": (
        "/experiments/{search}?where=lr+%3C+0.1+and+accuracy+%3E+0.9&columns=lr,hidden,accuracy#trials",
        1280,
        420,
        "light",
        "",
    ),
    "bulk": ("/experiments/confirm?action=archive&experiments={all}", 1280, 380, "dark", ""),
    "experiment": ("/experiments/{search}?axis=epoch&log=1", 1280, 900, "light", "#curves .u-over"),
    "search": ("/experiments/{search}/search", 1280, 920, "light", ""),
    "importance": ("/experiments/{search}/search?across=lr&up=hidden", 1280, 960, "light", "#importance td"),
    "compare": ("/compare?experiments={search}&best=4&step=180", 1280, 1180, "light", ""),
    "trial": ("/trials/{best}", 1280, 1000, "dark", ""),
    "failed-trial": ("/trials/{failed}", 1280, 1160, "light", ""),
    "narrow": ("/experiments", 390, 844, "dark", ""),
}
"""Names of pictures mapped to the page, the size of the window, the colour scheme, and where the cursor is."""

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


def train() -> None:
    """Run the experiments that the pictures show."""
    profiled = ["--config", "profiling.enabled=true"]
    runs = {
        "baseline": [str(EXAMPLES / "const.yaml"), *profiled],
        "search": [str(EXAMPLES / "adaptive.yaml"), *profiled, *SEARCH],
        "drafts": [str(EXAMPLES / "const.yaml"), *WRONG],
    }
    with tempfile.TemporaryDirectory() as directory:
        for name, text in (("train.py", REPORTING), ("reports.yaml", REPORTING_CONFIG)):
            Path(directory, name).write_text(text, encoding="utf-8")
        runs["reports"] = [str(Path(directory, "reports.yaml")), directory]
        for project in ("baseline", "search", "drafts", "drafts", "reports"):
            named = ["--config", f"project={project}", "--config", "workspace=digits"]
            subprocess.run([*DET, "run", *runs[project], *named], check=False, timeout=1800)


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
    for name, (path, width, height, scheme, cursor) in PICTURES.items():
        context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme)  # type: ignore[arg-type]
        page = context.new_page()
        page.goto(link)
        page.goto(base + path.format(**ids), wait_until="load")
        page.wait_for_timeout(1500)
        if cursor:
            place = page.locator(cursor).first
            place.wait_for(timeout=60_000)
            place.evaluate("(one) => one.closest('section').scrollIntoView()")
            place.hover()
        page.screenshot(path=directory / f"server-{name}.png")
        context.close()


def main() -> None:
    """Train unless DET_HOME is set, then take the pictures."""
    directory = Path(sys.argv[1] if len(sys.argv) > 1 else ROOT / "docs" / "_static")
    with contextlib.ExitStack() as stack:
        if "DET_HOME" not in os.environ:
            os.environ["DET_HOME"] = stack.enter_context(tempfile.TemporaryDirectory())
            train()
        from det_core.interfaces.records import State, TrialOrder
        from det_core.tracking import open_store

        with open_store() as store:
            search = max(store.experiments(), key=lambda one: store.experiment_summaries([one.id])[one.id].trials).id
            every = ",".join(str(one.id) for one in store.experiments())
            newest = store.experiments(limit=1)[0].id
            failed = store.trials(newest, states=[State.ERROR])[-1].id
            best = store.trial_results(search, order=TrialOrder.BEST, limit=1)[0].trial.id
        link = stack.enter_context(server())
        playwright = stack.enter_context(sync_playwright())
        browser = playwright.chromium.launch(
            executable_path="/usr/bin/chromium", args=["--no-sandbox", "--disable-dev-shm-usage"]
        )
        stack.callback(browser.close)
        ids = {"search": search, "best": best, "failed": failed, "all": every}
        take(browser, link, ids, directory)


if __name__ == "__main__":
    main()
