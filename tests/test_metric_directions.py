"""Directions of well-known metrics, and the hints that have them."""

from __future__ import annotations

import pytest

from det_core.metric_directions import known_direction, missing_direction, suggest_metric

LARGER = (
    *("accuracy", "val_accuracy", "valAcc", "VALID-ACC", "top5_acc", "acc@1", "val.acc", "val/acc", "val acc"),
    *("f1", "macroF1", "f1_score", "r2", "mAP@50", "mIoU", "AUROC", "rougeL", "bleu4", "episode_reward", "PSNR"),
)
SMALLER = ("loss", "validation_loss", "valLoss", "val_error", "rmse", "WER", "dice_loss", "accuracyError")
UNKNOWN = ("", "capacity", "lossless", "accuracy_gap", "neg_f1", "epoch", "lr2", "_", "Äcc")


def test_whole_words_of_a_metric_show_its_direction() -> None:
    assert {name: known_direction(name) for name in LARGER + SMALLER + UNKNOWN} == {
        **dict.fromkeys(LARGER, False),
        **dict.fromkeys(SMALLER, True),
        **dict.fromkeys(UNKNOWN),
    }


@pytest.mark.parametrize("name", SMALLER + UNKNOWN)
def test_only_a_metric_that_contradicts_the_default_gets_a_line(name: str) -> None:
    assert missing_direction(name) == ""
    assert missing_direction("accuracy") == (
        "larger values of 'accuracy' are usually better, but the smallest counts as the best; to change this, add "
        "`smaller_is_better: false` under searcher, and otherwise `true`"
    )


@pytest.mark.parametrize(
    ("wanted", "smaller", "question"),
    [
        ("acuracy", True, "; did you mean 'accuracy' with smaller_is_better: false?"),
        ("acuracy", False, "; did you mean 'accuracy'?"),
        ("los", False, "; did you mean 'loss' with smaller_is_better: true?"),
        ("xyz", True, ""),
    ],
)
def test_a_suggested_metric_has_its_direction(wanted: str, smaller: bool, question: str) -> None:
    assert suggest_metric(wanted, ["loss", "accuracy"], smaller_is_better=smaller) == question
