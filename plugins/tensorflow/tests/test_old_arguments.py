"""Arguments of Keras's optimizers before TensorFlow 2.11."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
import tensorflow as tf
from det_tensorflow.old_arguments import accept_old_arguments, refuse_ignored_rate

from det_core.errors import InvalidTrial

optimizers = tf.keras.optimizers
OLD = ("Adadelta", "Adagrad", "Adam", "Adamax", "Ftrl", "Nadam", "RMSprop", "SGD")


@pytest.fixture(autouse=True)
def _switches(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(optimizers.Optimizer, "_process_kwargs", optimizers.Optimizer._process_kwargs)
    for name in OLD:
        kind = getattr(optimizers, name)
        monkeypatch.setattr(kind, "__init__", kind.__init__)
    yield
    # A class whose __new__ was deleted passes its arguments to object.__new__, which rejects them.
    optimizers.Optimizer.__new__ = lambda kind, *args, **kwargs: object.__new__(kind)


@pytest.mark.parametrize("name", [*OLD, "AdamW"])
def test_a_rate_that_would_be_ignored_is_refused(name: str) -> None:
    refuse_ignored_rate()
    with pytest.raises(InvalidTrial, match=rf"^{name}\(lr=0.5\).* write {name}\(learning_rate=0.5\)"):
        getattr(optimizers, name)(lr=0.5)
    assert float(getattr(optimizers, name)(learning_rate=0.5).learning_rate) == 0.5


@pytest.mark.parametrize("name", OLD)
def test_old_arguments_have_their_old_meaning(name: str) -> None:
    accept_old_arguments()
    weight, expected = tf.Variable(1.0), tf.Variable(1.0)
    made = getattr(optimizers, name)(lr=0.5, decay=0.5)
    for _ in range(3):
        made.apply_gradients([(tf.constant(0.25), weight)])
    before = getattr(optimizers.legacy, name)(learning_rate=0.5, decay=0.5)
    for _ in range(3):
        before.apply_gradients([(tf.constant(0.25), expected)])
    assert float(weight) == float(expected) != 1.0
    assert type(getattr(optimizers, name)(0.5)) is getattr(optimizers, name)
    assert type(copy.copy(getattr(optimizers, name)(0.5))) is getattr(optimizers, name)


class Own(tf.keras.optimizers.SGD):  # type: ignore[misc]
    """Optimizer of a trial, which passes the old argument on."""

    def __init__(self, rate: float, **kwargs: Any) -> None:
        super().__init__(lr=rate, **kwargs)


class Plain(tf.keras.optimizers.Adam):  # type: ignore[misc]
    """Optimizer of a trial with the constructor of its base."""


def test_a_subclass_with_an_ignored_rate_is_refused() -> None:
    refuse_ignored_rate()
    with pytest.raises(InvalidTrial, match=r"write Own\(learning_rate=0.5\)"):
        Own(0.5)
    with pytest.raises(InvalidTrial, match=r"write Plain\(learning_rate=0.5\)"):
        Plain(lr=0.5)


def test_the_old_rate_of_a_subclass_is_its_rate() -> None:
    refuse_ignored_rate()
    for _ in range(2):
        accept_old_arguments()
    own, plain = Own(0.5, momentum=0.25), Plain(lr=0.5, beta_1=0.5)
    assert (type(own), float(own.learning_rate), own.momentum) == (Own, 0.5, 0.25)
    assert (type(plain), float(plain.learning_rate), plain.beta_1) == (Plain, 0.5, 0.5)
    assert float(Plain(0.125).learning_rate) == 0.125
    assert float(Plain.from_config(plain.get_config()).learning_rate) == 0.5


@pytest.mark.parametrize("method", ["_resource_apply_dense", "_resource_apply_sparse"])
def test_a_subclass_whose_update_would_be_ignored_is_refused(method: str) -> None:
    old = type("Old", (optimizers.SGD,), {method: lambda self, *_: None})
    refuse_ignored_rate()
    with pytest.raises(InvalidTrial, match=rf"^Old defines {method}, which .* tf.keras.optimizers.legacy$"):
        old(0.5)
    type("New", (optimizers.legacy.SGD,), {method: lambda self, *_: None})(0.5)
