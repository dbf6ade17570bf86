"""Data types and loss scaling in mixed precision, by det or by the trial itself."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest
import torch
from det_torch import PyTorchTrial, PyTorchTrialContext, _optimizer_steps
from det_torch._callback import PyTorchCallbackList
from det_torch._trial_steps import build_trial_steps
from torch import nn

from det_core.errors import InvalidTrial

O1 = {"mixed_precision": "O1"}
SCALE = 65536.0
"""Initial scale of torch's scalers."""


@pytest.fixture
def _float16(monkeypatch: pytest.MonkeyPatch) -> None:
    """Train in float16 on the CPU as on CUDA. This is slow, but works."""
    monkeypatch.setitem(_optimizer_steps._DTYPES, "cpu", torch.float16)


float16 = pytest.mark.usefixtures("_float16")


class Trial(PyTorchTrial):
    """Trial that records the data type in which its layers compute."""

    build_training_data_loader = build_validation_data_loader = lambda self: None

    def __init__(self, context: PyTorchTrialContext) -> None:
        self.context = context
        self.seen: list[torch.dtype] = []

    def loss(self, model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
        outputs = model(batch)
        self.seen.append(outputs.dtype)
        return outputs.float().pow(2).mean()


class FrameworkDrives(Trial):
    def build_model(self) -> nn.Module:
        torch.manual_seed(3)
        return nn.Linear(3, 2)

    def optimizer(self, model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.SGD(model.parameters(), lr=0.1)

    def train_batch(self, batch: Any, model: nn.Module, epoch_idx: int, batch_idx: int) -> Any:
        return self.loss(model, batch)

    def evaluate_batch(self, batch: Any, model: nn.Module) -> Any:
        return {"validation_loss": self.loss(model, batch)}


class UserDrives(Trial):
    def __init__(self, context: PyTorchTrialContext) -> None:
        super().__init__(context)
        torch.manual_seed(3)
        self.model = context.wrap_model(nn.Linear(3, 2))
        self.sgd = context.wrap_optimizer(torch.optim.SGD(self.model.parameters(), lr=0.1))

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
        loss = self.loss(self.model, batch)
        self.context.backward(loss)
        self.context.step_optimizer(self.sgd)
        return loss

    def evaluate_batch(self, batch: Any) -> Any:
        return {"validation_loss": self.loss(self.model, batch)}


BATCHES = [torch.arange(6.0).reshape(2, 3) / 32 + number / 16 for number in range(6)]
"""Small inputs, so that no scaled gradient leaves the range of float16."""


def train(trial: Trial, batches: list[torch.Tensor] = BATCHES) -> list[float]:
    """Train like the adapter, and return the loss of each batch."""
    context = trial.context
    steps = build_trial_steps(trial, context, PyTorchCallbackList({}))
    losses = []
    for number, batch in enumerate(batches):
        with context._loop.autocast():
            losses.append(steps.train_batch(batch, 0, number).item())
        context._loop.end_batch(context.lr_schedulers, context.aggregation_frequency)
    return losses


def by_hand(batches: list[torch.Tensor], *, aggregation: int = 1, clip: float | None = None) -> nn.Module:
    """Train in float16 as torch's documentation recommends, and return the model."""
    torch.manual_seed(3)
    model = nn.Linear(3, 2)
    sgd = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu")
    for number, batch in enumerate(batches, 1):
        with torch.autocast("cpu", torch.float16):
            loss = model(batch).float().pow(2).mean()
        scaler.scale(loss).backward()
        if number % aggregation == 0:
            scaler.unscale_(sgd)
            for parameter in model.parameters():
                parameter.grad.div_(aggregation)
            if clip is not None:
                nn.utils.clip_grad_norm_(model.parameters(), clip)
            scaler.step(sgd)
            scaler.update()
            sgd.zero_grad()
    return model


def same(one: nn.Module, other: nn.Module) -> bool:
    return all(map(torch.equal, one.parameters(), other.parameters()))


class TestTypes:
    @pytest.mark.parametrize("trial_class", [FrameworkDrives, UserDrives])
    @pytest.mark.parametrize(
        ("level", "expected"), [("O0", torch.float32), *((level, torch.bfloat16) for level in ("O1", "O2", "O3"))]
    )
    def test_layers_compute_in_the_type_of_the_level_and_weights_in_float32(
        self, trial_class: type[Trial], level: str, expected: torch.dtype, make_context: Any
    ) -> None:
        context = make_context(optimizations={"mixed_precision": level})
        trial = trial_class(context)
        losses = train(trial, BATCHES[:1] * 3)
        assert trial.seen == [expected] * 3
        assert losses[-1] < losses[0]
        assert {parameter.dtype for parameter in context.models[0].parameters()} == {torch.float32}
        assert context.scaler is None

    def test_use_amp_is_the_same_as_o1(self, make_context: Any) -> None:
        class UsesAmp(UserDrives):
            def __init__(self, context: PyTorchTrialContext) -> None:
                super().__init__(context)
                context.experimental.use_amp()

        contexts = [make_context(), make_context(optimizations=O1)]
        assert train(UsesAmp(contexts[0])) == train(UserDrives(contexts[1]))
        assert same(*(context.models[0] for context in contexts))
        assert not same(contexts[0].models[0], by_hand(BATCHES))

    def test_mixed_precision_may_be_requested_twice(self, make_context: Any) -> None:
        context = make_context(optimizations=O1)
        amp = context._loop.amp
        context.experimental.use_amp()
        assert context._loop.amp is amp

    @pytest.mark.parametrize("trial_class", [FrameworkDrives, UserDrives])
    def test_an_evaluation_uses_mixed_precision(self, trial_class: type[Trial], make_context: Any) -> None:
        context = make_context(optimizations=O1)
        trial = trial_class(context)
        with context._loop.autocast(), torch.no_grad():
            build_trial_steps(trial, context, PyTorchCallbackList({})).evaluate(BATCHES[0], 0)
        assert trial.seen == [torch.bfloat16]

    def test_autocast_is_off_by_default(self, make_context: Any) -> None:
        assert isinstance(make_context()._loop.autocast(), nullcontext)

    def test_clipping_and_stepping_are_not_under_autocast(self, make_context: Any) -> None:
        context = make_context(optimizations=O1)
        enabled = []
        trial = UserDrives(context)
        trial.sgd.register_step_pre_hook(lambda *_: enabled.append(torch.is_autocast_enabled("cpu")))
        trial.model.weight.register_hook(lambda grad: enabled.append(torch.is_autocast_enabled("cpu")))
        with context._loop.autocast():
            context.backward(trial.loss(trial.model, BATCHES[0]))
            context.step_optimizer(trial.sgd, lambda _: enabled.append(torch.is_autocast_enabled("cpu")))
            assert torch.is_autocast_enabled("cpu")
        assert enabled == [False] * 3

    def test_a_forward_pass_after_a_step_sees_the_new_weights(self, make_context: Any) -> None:
        """Autocast caches the weights that it has cast, but a GAN uses a network again after stepping it."""
        context = make_context(optimizations=O1)
        trial = UserDrives(context)
        with context._loop.autocast():
            trial.train_batch(BATCHES[3], 0, 0)
            again = trial.model(BATCHES[3])
        with context._loop.autocast():
            assert torch.equal(trial.model(BATCHES[3]), again)


@float16
class TestScaling:
    @pytest.mark.parametrize("trial_class", [FrameworkDrives, UserDrives])
    @pytest.mark.parametrize("aggregation", [1, 2])
    def test_scaled_training_equals_a_loop_by_hand(
        self, trial_class: type[Trial], aggregation: int, make_context: Any
    ) -> None:
        context = make_context(optimizations={**O1, "aggregation_frequency": aggregation})
        trial = trial_class(context)
        train(trial)
        assert trial.seen == [torch.float16] * len(BATCHES)
        assert same(context.models[0], by_hand(BATCHES, aggregation=aggregation))

    @pytest.mark.parametrize("aggregation", [1, 2])
    def test_the_first_style_clips_unscaled_gradients(self, aggregation: int, make_context: Any) -> None:
        context = make_context(
            optimizations={**O1, "aggregation_frequency": aggregation}, hparams={"clip_grad_l2_norm": 0.1}
        )
        train(FrameworkDrives(context))
        expected = by_hand(BATCHES, aggregation=aggregation, clip=0.1)
        assert same(context.models[0], expected)
        assert not same(by_hand(BATCHES, aggregation=aggregation), expected)

    def test_a_step_with_infinite_gradients_is_skipped(self, make_context: Any) -> None:
        context = make_context(optimizations=O1)
        trial = UserDrives(context)
        before = [parameter.clone() for parameter in trial.model.parameters()]
        train(trial, [BATCHES[0] + float("inf")])
        assert all(map(torch.equal, trial.model.parameters(), before))
        assert context.scaler.get_scale() == SCALE / 2
        assert trial.model.weight.grad is None
        train(trial, BATCHES[:1])
        assert not any(map(torch.equal, trial.model.parameters(), before))
        assert context.scaler.get_scale() == SCALE / 2

    def test_the_scale_waits_for_the_end_of_the_batch(self, make_context: Any) -> None:
        """Both losses are scaled before the first optimizer finds an infinite gradient."""
        context = make_context(optimizations=O1)
        weights = [nn.Parameter(torch.ones(1)) for _ in range(2)]
        first, second = (context.wrap_optimizer(torch.optim.SGD([weight], lr=1.0)) for weight in weights)
        context.backward(weights[0].sum() * float("inf"))
        context.backward(weights[1].sum() * 0.25)
        context.step_optimizer(first)
        context.step_optimizer(second)
        assert context.scaler.get_scale() == SCALE
        context._loop.end_batch(context.lr_schedulers, context.aggregation_frequency)
        assert [weight.item() for weight in weights] == [1.0, 0.75]
        assert context.scaler.get_scale() == SCALE / 2

    def test_an_optimizer_may_step_twice_in_a_batch(self, make_context: Any) -> None:
        context = make_context(optimizations=O1)
        weights = [nn.Parameter(torch.ones(1)) for _ in range(2)]
        first, second = (context.wrap_optimizer(torch.optim.SGD([weight], lr=1.0)) for weight in weights)
        context.backward(weights[1].sum() * 0.25)
        for _ in range(2):
            context.backward(weights[0].sum() * 0.25)
            context.step_optimizer(first)
        context.step_optimizer(second)
        context._loop.end_batch(context.lr_schedulers, context.aggregation_frequency)
        assert [weight.item() for weight in weights] == [0.5, 0.75]
        assert context.scaler.state_dict()["_growth_tracker"] == 1

    def test_a_step_without_gradients_changes_nothing(self, make_context: Any) -> None:
        """The optimizer's parameters have no part in the batch, with or without another optimizer that steps."""
        context = make_context(optimizations=O1)
        weights = [nn.Parameter(torch.ones(1)) for _ in range(2)]
        first, second = (context.wrap_optimizer(torch.optim.SGD([weight], lr=1.0)) for weight in weights)
        for trained in ((), (weights[0],)):
            for weight in trained:
                context.backward(weight.sum() * 0.25)
            context.step_optimizer(first)
            context.step_optimizer(second, clip_grads=lambda own: nn.utils.clip_grad_norm_(own, 1.0))
            context._loop.end_batch(context.lr_schedulers, context.aggregation_frequency)
        assert [weight.item() for weight in weights] == [0.75, 1.0]
        assert context.scaler.state_dict()["_growth_tracker"] == 1

    def test_batches_without_a_step_leave_the_scale(self, make_context: Any) -> None:
        context = make_context(optimizations={**O1, "aggregation_frequency": 3})
        train(UserDrives(context))
        assert context.scaler.state_dict()["_growth_tracker"] == 2

    def test_backward_takes_a_gradient(self, make_context: Any) -> None:
        context = make_context(optimizations=O1)
        weight = nn.Parameter(torch.ones(2))
        sgd = context.wrap_optimizer(torch.optim.SGD([weight], lr=1.0))
        context.backward(weight * 2, gradient=torch.tensor([0.25, 0.5]), retain_graph=True)
        context.step_optimizer(sgd)
        assert weight.tolist() == [0.5, 0.0]

    def test_the_scaler_continues_from_its_saved_state(self, make_context: Any) -> None:
        whole, first, second = (make_context(optimizations=O1) for _ in range(3))
        batches = [BATCHES[0], BATCHES[1] + float("inf"), *BATCHES[2:]]
        train(UserDrives(whole), batches)
        trials = [UserDrives(context) for context in (first, second)]
        train(trials[0], batches[:3])
        trials[1].model.load_state_dict(trials[0].model.state_dict())
        second.scaler.load_state_dict(first.scaler.state_dict())
        train(trials[1], batches[3:])
        assert same(second.models[0], whole.models[0])
        assert second.scaler.state_dict() == whole.scaler.state_dict()


class Scales(UserDrives):
    """Trial that implements mixed precision itself."""

    clip: Any = None

    def __init__(self, context: PyTorchTrialContext) -> None:
        super().__init__(context)
        self.scaler = context.wrap_scaler(torch.amp.GradScaler("cpu"))

    def train_batch(self, batch: Any, epoch_idx: int, batch_idx: int) -> Any:
        with torch.autocast("cpu", torch.float16):
            loss = self.loss(self.model, batch)
        self.context.backward(self.scaler.scale(loss))
        self.context.step_optimizer(self.sgd, self.clip, scaler=self.scaler)
        if self.context._loop.updates(self.context.aggregation_frequency):
            self.scaler.update()
        return loss


class TestScalersOfTheTrial:
    @pytest.mark.parametrize("aggregation", [1, 2])
    def test_training_with_a_wrapped_scaler_equals_a_loop_by_hand(self, aggregation: int, make_context: Any) -> None:
        context = make_context(optimizations={"aggregation_frequency": aggregation})
        trial = Scales(context)
        train(trial)
        assert trial.seen == [torch.float16] * len(BATCHES)
        assert same(trial.model, by_hand(BATCHES, aggregation=aggregation))
        assert context.scaler is trial.scaler
        assert trial.scaler.state_dict()["_growth_tracker"] == len(BATCHES) // aggregation

    def test_a_step_without_gradients_is_possible(self, make_context: Any) -> None:
        """Torch's scaler itself would raise AssertionError."""
        context = make_context()
        scaler = context.wrap_scaler(torch.amp.GradScaler("cpu"))
        sgd = context.wrap_optimizer(torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=1.0))
        context.step_optimizer(sgd, scaler=scaler)

    def test_clip_grads_may_unscale(self, make_context: Any) -> None:
        class Clips(Scales):
            def clip(self, parameters: Any) -> None:
                self.scaler.unscale_(self.sgd)
                nn.utils.clip_grad_norm_(parameters, 0.1)

        trial = Clips(make_context())
        train(trial)
        assert same(trial.model, by_hand(BATCHES, clip=0.1))

    def test_a_wrapped_scaler_skips_infinite_gradients(self, make_context: Any) -> None:
        trial = Scales(make_context())
        before = trial.model.weight.clone()
        train(trial, [BATCHES[0] * float("inf")])
        assert torch.equal(trial.model.weight, before)
        assert trial.scaler.get_scale() == SCALE / 2

    def test_only_scalers_can_be_wrapped(self, make_context: Any) -> None:
        with pytest.raises(InvalidTrial, match=r"wrap_scaler\(\) was given 3; expected a torch.amp.GradScaler"):
            make_context().wrap_scaler(3)

    def test_scalers_of_the_trial_exclude_those_of_det(self, make_context: Any) -> None:
        with pytest.raises(InvalidTrial, match="det handles mixed precision in this trial"):
            Scales(make_context(optimizations=O1))
        with pytest.raises(InvalidTrial, match=r"the trial called wrap_scaler\(\); drop one"):
            Scales(make_context()).context.experimental.use_amp()

    def test_only_one_scaler_can_be_wrapped(self, make_context: Any) -> None:
        with pytest.raises(InvalidTrial, match="the trial already wrapped a scaler"):
            Scales(make_context()).context.wrap_scaler(torch.amp.GradScaler("cpu"))

    def test_a_wrapped_scaler_must_be_passed(self, make_context: Any) -> None:
        trial = Scales(make_context())
        for scaler in (None, torch.amp.GradScaler("cpu")):
            with pytest.raises(InvalidTrial, match=r"wrapped a scaler.*pass what wrap_scaler\(\) returned"):
                trial.context.step_optimizer(trial.sgd, scaler=scaler)

    @pytest.mark.parametrize("optimizations", [O1, {}])
    def test_a_passed_scaler_must_be_wrapped(self, optimizations: dict[str, str], make_context: Any) -> None:
        trial = UserDrives(make_context(optimizations=optimizations))
        with pytest.raises(InvalidTrial, match="which is not wrapped; call wrap_scaler first"):
            trial.context.step_optimizer(trial.sgd, scaler=torch.amp.GradScaler("cpu"))

    def test_the_first_style_cannot_wrap_scalers(self, make_context: Any) -> None:
        class Mixed(FrameworkDrives):
            def __init__(self, context: PyTorchTrialContext) -> None:
                super().__init__(context)
                context.wrap_scaler(torch.amp.GradScaler("cpu"))

        context = make_context()
        with pytest.raises(InvalidTrial, match="__init__ wraps models, optimizers or a scaler"):
            build_trial_steps(Mixed(context), context, PyTorchCallbackList({}))


def test_apex_is_refused(make_context: Any) -> None:
    with pytest.raises(InvalidTrial, match=r"remove the call and set .*mixed_precision: O1"):
        make_context().configure_apex_amp(models=[], optimizers=[], opt_level="O2", num_losses=2)
