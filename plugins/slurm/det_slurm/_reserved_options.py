"""Options of ``srun`` and ``sbatch`` that users cannot choose."""

from __future__ import annotations

import re
from collections.abc import Mapping

Reserved = Mapping[str, Mapping[str, str]]
"""Long options with their short forms, by the reason why users cannot choose them."""

SRUN: Reserved = {
    "det chooses {} itself; set slots_per_node and resources.slots_per_trial": {
        "--nodes": "N",
        "--ntasks": "n",
        "--ntasks-per-node": "",
    },
    "det chooses {} itself; omit it": {"--chdir": "D", "--dependency": "d", "--job-name": "J"},
    "{} breaks the pipes of srun, through which det reaches the nodes; omit it": {
        "--error": "e",
        "--input": "i",
        "--label": "l",
        "--multi-prog": "",
        "--output": "o",
        "--pty": "",
        "--quiet": "Q",
        "--unbuffered": "u",
    },
    "{} ends workers before they have saved a checkpoint; omit it": {"--kill-on-bad-exit": "K", "--wait": "W"},
    "{} keeps variables from the nodes that the agent needs; set environment.environment_variables": {"--export": ""},
}
"""Options of the launches of trials."""
SBATCH: Reserved = {
    "{} starts the runner more than once; omit it": {"--array": "a"},
    "{} keeps variables from the runner that it needs; omit it": {"--export": "", "--export-file": ""},
    "{} starts no job, or waits for its end; omit it": {"--test-only": "", "--wait": "W"},
    "{} is what --save-seconds chooses; omit it": {"--signal": ""},
}
"""Options of the job of a runner."""
SRUN_VARIABLES = (
    "SLURM_EXPORT_ENV",
    "SLURM_SRUN_MULTI",
    "SLURM_STDERRMODE",
    "SLURM_STDOUTMODE",
    "SLURM_UNBUFFEREDIO",
    "SRUN_ERROR",
    "SRUN_EXPORT_ENV",
    "SRUN_OUTPUT",
)
"""Variables that have the effect of such options. Other ones have no effect, because det gives their options."""
_FLAGS = "EHOQVXZhjklsuv"
"""Short options without an argument, which others may follow in the same word."""


def explain_wrong_option(word: str, reserved: Reserved) -> str | None:
    """Return why a word is no option that users can choose, or None if it is one."""
    if not re.match(r"--?\w", word):
        return f"expected an option in one word, such as --exclude=n7, got {word!r}"
    (letters,) = re.findall(f"^-[{_FLAGS}]*.", word)
    name = word.partition("=")[0]
    for reason, options in reserved.items():
        for option, letter in options.items():
            is_beginning = len(name) > 2 and option.startswith(name)  # which Slurm accepts as well
            if is_beginning or (letter and letter in letters):
                return reason.format(option)
    return None
