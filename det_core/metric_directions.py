"""Directions of well-known metrics, for hints to users. They never change what a config means."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from det_core.similar_names import closest_name

__all__ = ["known_direction"]

_WORDS: Final[Mapping[bool | None, str]] = {
    False: "acc accuracies accuracy ap auc aucpr auprc auroc bleu chrf cider correlation dice elbo f1 fbeta fscore "
    "hits iou jaccard kappa likelihood map mcc meteor miou mrr ndcg pearson pesq precision psnr r2 recall return "
    "returns reward rewards rouge score scores sdr sensitivity snr spearman specificity spice ssim stoi success",
    True: "bpb bpc brier cer cost crossentropy deviance distance divergence eer entropy err error errors fid hausdorff "
    "kl latency loss losses lpips mae mape mase mse msle nll perplexity ppl regret rmse rmsle smape ter wer",
    None: "diff drop false gap inverse neg negative std stdev true var variance",
}
"""Words of metrics, by whether smaller values are better. None is for words that make this uncertain."""
_DIRECTIONS: Final = {word: direction for direction, words in _WORDS.items() for word in words.split()}

_PARTS: Final = re.compile(r"[^\W\d_]+\d*")
_HUMPS: Final = re.compile(r"[A-Z]+(?![a-z])\d*|[A-Z]?[a-z]+\d*")


def known_direction(metric: str) -> bool | None:
    """Return whether smaller values of a well-known metric are better, or None if it is not known.

    Args:
        metric: name such as ``val_accuracy``, ``valAcc``, ``top5_acc`` or ``mAP@50``, of which whole words count.
    """
    found = {_DIRECTIONS[word] for word in _words(metric) if word in _DIRECTIONS}
    return True in found if found and None not in found else None  # the loss of a score is a loss


def missing_direction(metric: str) -> str:
    """Return a line for users whose config lacks ``smaller_is_better``, if its default contradicts the metric, or "".

    Args:
        metric: the searcher's metric.
    """
    if known_direction(metric) is not False:
        return ""
    return (
        f"larger values of {metric!r} are usually better, but the smallest counts as the best; to change this, add "
        "`smaller_is_better: false` under searcher, and otherwise `true`"
    )


def suggest_metric(name: str, known: Iterable[str], *, smaller_is_better: bool) -> str:
    """Return a question that suggests the most similar metric, with its direction if the config has another one.

    Args:
        name: name that the config has.
        known: names of the metrics that there are.
        smaller_is_better: whether smaller values are better by the config.
    """
    close = closest_name(name, known)
    if close is None:
        return ""
    direction = known_direction(close)
    added = "" if direction in (None, smaller_is_better) else f" with smaller_is_better: {str(direction).lower()}"
    return f"; did you mean {close!r}{added}?"


def _words(name: str) -> Iterator[str]:
    """Yield the words of a name in lower case, those that end in digits also without them."""
    for part in _PARTS.findall(name):
        for word in (part, *_HUMPS.findall(part)):
            yield from (word.lower(), word.rstrip("0123456789").lower())
