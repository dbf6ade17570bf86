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


def test_a_subclass_with_an_ignored_rate_is_refused() -> None:
    class Own(optimizers.SGD):  # type: ignore[misc]
        def __init__(self, **kwargs: Any) -> None:
            super().__init__(lr=0.5, **kwargs)

    refuse_ignored_rate()
    accept_old_arguments()
    with pytest.raises(InvalidTrial, match=r"write Own\(learning_rate=0.5\)"):
        Own()
