"""Make a checkpoint with an old release of the original system: ``python make.py RELEASE DIRECTORY [onecycle]``.

Run it once per release with a Python that has a torch of that time and the release's dependencies (the release itself
is installed, without dependencies, into a temporary directory). The checkpoints in this directory were made with:

    releases          Python   torch    numpy
    0.12  to 0.13     3.7.16   1.4.0    1.21.6
    0.14  to 0.23     3.7.16   1.9.1    1.21.6
    0.24  to 0.38     3.11.7   2.13.0   2.4.6

The release trains five batches and saves with its own code. These are the differences from a run on a cluster:

- Releases up to 0.20 train in their local test mode, with five workloads of one batch instead of one workload.
  Releases from 0.21 on train with their Trainer, off-cluster, where the trial id in ``trial_state.pkl`` is 0.
- Releases 0.17 to 0.20 write ``workload_sequencer.pkl`` only if there is a master. This script fills in the state of
  their sequencer, and the release pickles and writes it.

The script keeps the files that det reads, and ``expected.json`` with the values that the trial held in memory when it
was saved.
"""

import inspect
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

BATCHES = 5
KEPT = (
    "state_dict.pth",
    "metadata.json",
    "trial_state.pkl",
    "workload_sequencer.pkl",
    "load_data.json",
    "expected.json",
)
CONFIG = {
    "description": "old checkpoint",
    "hyperparameters": {"global_batch_size": 4},
    "searcher": {"name": "single", "metric": "validation_loss", "max_length": {"batches": BATCHES}},
    "resources": {"slots_per_trial": 1, "native_parallel": False},  # the first releases have no default for the latter
}


def install(release, site):
    both = ["determined==" + release]
    if release < "0.23":
        both.append("determined-common==" + release)
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--target", str(site)]
    subprocess.run(pip + both, check=True)
    sys.path.insert(0, str(site))


def parts():
    """Return a model, its optimizer and its learning rate scheduler, which are the same for all releases."""
    import torch

    torch.manual_seed(7)
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4), torch.nn.Linear(4, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    if sys.argv[3:] == ["onecycle"]:
        return model, optimizer, torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.01, total_steps=50)
    return model, optimizer, torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)


def data(loader_class):
    import torch

    generator = torch.Generator()
    generator.manual_seed(3)
    rows = torch.randn(40, 3, generator=generator)
    return loader_class(torch.utils.data.TensorDataset(rows, rows.sum(1, keepdim=True)), batch_size=4)


def make_trial():
    from determined import pytorch
    from torch.nn.functional import mse_loss

    class Counter(getattr(pytorch, "PyTorchCallback", object)):  # the first releases had none
        def state_dict(self):
            return {"counted": 3}

        def load_state_dict(self, state_dict):
            raise NotImplementedError

    class Trial(pytorch.PyTorchTrial):
        """The style with ``context.wrap_*``."""

        def __init__(self, context):
            self.context = context
            model, optimizer, scheduler = parts()
            self.model, self.optimizer = context.wrap_model(model), context.wrap_optimizer(optimizer)
            context.wrap_lr_scheduler(scheduler, pytorch.LRScheduler.StepMode.STEP_EVERY_BATCH)

        def train_batch(self, batch, epoch_idx, batch_idx):
            loss = mse_loss(self.model(batch[0]), batch[1])
            self.context.backward(loss)
            self.context.step_optimizer(self.optimizer)
            return {"loss": loss}

        def evaluate_batch(self, batch):
            return {"validation_loss": mse_loss(self.model(batch[0]), batch[1]).item()}

        def build_training_data_loader(self):
            return data(pytorch.DataLoader)

        build_validation_data_loader = build_training_data_loader

        def build_callbacks(self):
            return {"counter": Counter()}

    class FirstStyle(pytorch.PyTorchTrial):
        """The style of the first releases."""

        def __init__(self, context):
            self.model, self.adam, self.decay = parts()

        def build_model(self):
            return self.model

        def optimizer(self, model):
            return self.adam

        def create_lr_scheduler(self, optimizer):
            return pytorch.LRScheduler(self.decay, pytorch.LRScheduler.StepMode.STEP_EVERY_BATCH)

        def train_batch(self, batch, model, epoch_idx, batch_idx):
            return {"loss": mse_loss(model(batch[0]), batch[1])}

        def evaluate_batch(self, batch, model):
            return {"validation_loss": mse_loss(model(batch[0]), batch[1]).item()}

        build_training_data_loader = Trial.build_training_data_loader
        build_validation_data_loader = build_training_data_loader

    for one in (Trial, FirstStyle):  # model.pth of 0.12 pickles them by reference otherwise
        one.__module__ = "__main__"
    return Trial if hasattr(getattr(pytorch, "PyTorchTrialContext", None), "wrap_model") else FirstStyle


def note_what_is_saved(controller_class):
    """Write ``expected.json`` after each save, while the generators have the saved states."""
    import numpy as np
    import torch

    save = controller_class._save

    def noting(self, path):
        fill_in_sequencer(self)
        answer = save(self, path)
        wrapped = hasattr(getattr(self, "context", None), "models")
        model = self.context.models[0] if wrapped else self.model
        optimizer = self.context.optimizers[0] if wrapped else self.optimizer
        held = {
            "model": {name: value.tolist() for name, value in model.state_dict().items()},
            "learning_rate": optimizer.param_groups[0]["lr"],
            "momenta": [one["exp_avg"].tolist() for one in optimizer.state.values()],
            "drawn_next": [random.random(), np.random.random(), torch.rand(1).item()],
        }
        Path(str(path), "expected.json").write_text(json.dumps(held))
        return answer

    controller_class._save = noting


def fill_in_sequencer(controller):
    if not hasattr(controller, "wlsq"):
        return
    from determined.layers import WorkloadSequencer

    controller.wlsq = object.__new__(WorkloadSequencer)
    controller.wlsq.state = state = WorkloadSequencer.SavableState(trial_id=1, step_id=BATCHES, last_ckpt=BATCHES)
    setattr(state, "latest_batch" if hasattr(state, "latest_batch") else "steps_completed", BATCHES)


class Kept:
    """Temporary directory that stays until its content is copied."""

    def __init__(self):
        self.name = tempfile.mkdtemp()

    def __enter__(self):
        return self.name

    def __exit__(self, *error):
        pass

    def cleanup(self):
        pass


def test_mode(trial_class, work):
    """Train in local test mode, which is ``create(local=True, test=True)`` or, in the first releases, `create`."""
    try:
        from determined.experimental import _native
    except ImportError:
        from determined import _native
    from determined import workload

    name = "_make_test_workloads" if hasattr(_native, "_make_test_workloads") else "make_test_workloads"
    original = getattr(_native, name)

    def five_batches(*arguments):
        _, *rest = next(original(*arguments))
        for done in range(BATCHES):
            one = workload.train_workload(done + 1)
            if hasattr(one, "total_batches_processed"):
                one.total_batches_processed = done
            yield (one, *rest[:-1], workload.ignore_workload_response)
        place = [[work / "checkpoint"]] if len(rest) == 2 else []
        yield (workload.checkpoint_workload(), *place, workload.ignore_workload_response)

    setattr(_native, name, five_batches)
    if hasattr(_native, "test_one_batch"):
        wants_path = "context_path" in inspect.signature(_native.test_one_batch).parameters
        place = {"context_path": Path.cwd()} if wants_path else {}
        _native.test_one_batch(trial_class=trial_class, config=CONFIG, **place)
    else:
        _native.create(trial_class, CONFIG, mode=_native.Mode.TEST, context_dir=".", command=["model_def.py"])


def trainer(trial_class):
    from determined import pytorch

    with pytorch.init(hparams=CONFIG["hyperparameters"], exp_conf=CONFIG) as context:
        pytorch.Trainer(trial_class(context), context).fit(
            max_length=pytorch.Batch(BATCHES), checkpoint_period=pytorch.Batch(BATCHES)
        )


def main(release, directory):
    work = Path(tempfile.mkdtemp())
    context = work / "context"
    context.mkdir()
    (context / "model_def.py").touch()
    os.chdir(str(context))
    install(release, work / "site")
    os.environ["XDG_DATA_HOME"] = str(work)
    tempfile.tempdir = str(work)
    tempfile.TemporaryDirectory = Kept

    from determined import pytorch

    trial_class = make_trial()
    note_what_is_saved(trial_class.trial_controller_class)
    if hasattr(pytorch, "Trainer"):
        trainer(trial_class)
    else:
        test_mode(trial_class, work)

    saved = max(work.rglob("expected.json"), key=lambda path: path.stat().st_mtime).parent
    target = Path(directory)
    target.mkdir(parents=True, exist_ok=True)
    for name in KEPT:
        if (saved / name).exists():
            shutil.copy(str(saved / name), str(target / name))
    shutil.rmtree(str(work))


if __name__ == "__main__":
    main(sys.argv[1], str(Path(sys.argv[2]).resolve()))
