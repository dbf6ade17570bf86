"""Softmax regression on handwritten digits, by stochastic gradient descent. This module does not use det."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits

BATCH = 32


class Digits:
    """Model and data, with 1500 images for training and 297 for validation.

    The same seed gives the same model after every epoch.
    """

    def __init__(self, lr: float, seed: int) -> None:
        images, self.labels = load_digits(return_X_y=True)
        self.images = np.c_[images / 16, np.ones(len(images))]
        self.weights = np.zeros((self.images.shape[1], 10))
        self.lr, self.seed = lr, seed

    def train_epoch(self, epoch: int) -> float:
        """Train on all data in a random order that belongs to the epoch, and return the mean loss."""
        order = np.random.default_rng((self.seed, epoch)).permutation(1500)
        losses = []
        for rows in np.array_split(order, 1500 // BATCH):
            chances = self._chances(rows)
            truth = np.eye(10)[self.labels[rows]]
            losses.append(-np.log((chances * truth).sum(axis=1)).mean())
            self.weights -= self.lr * self.images[rows].T @ (chances - truth) / len(rows)
        return float(np.mean(losses))

    def accuracy(self) -> float:
        """Return the share of validation images that the model classifies correctly."""
        rows = np.arange(1500, len(self.labels))
        return float((self._chances(rows).argmax(axis=1) == self.labels[rows]).mean())

    def save(self, directory: Path) -> None:
        np.save(directory / "weights.npy", self.weights)

    def load(self, directory: Path) -> None:
        self.weights = np.load(directory / "weights.npy")

    def _chances(self, rows: np.ndarray) -> np.ndarray:
        scores = self.images[rows] @ self.weights
        chances = np.exp(scores - scores.max(axis=1, keepdims=True))
        return chances / chances.sum(axis=1, keepdims=True)
