"""Plugin module of det-jax. Importing it does not import JAX."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import det_core
from det_core.specs import FrameworkSpec

_LOADING = """\
import numpy
arrays = dict(numpy.load("{path}/jax.npz"))  # names such as weights/kernel"""


@det_core.hookimpl
def det_frameworks() -> Iterator[FrameworkSpec]:
    yield FrameworkSpec(  # without `prepare`: each fork of a process that has imported JAX prints a warning of JAX
        name="jax",
        target="det_jax._run:run_trial",
        install="pip install 'det-jax[cpu]'",
        loading=_LOADING,
        load="det_jax._load:load_state_from_checkpoint_path",
    )


@det_core.hookimpl
def det_choose_framework(mro: Sequence[str]) -> str | None:
    return "jax" if "det_jax._trial.JaxTrial" in mro else None
