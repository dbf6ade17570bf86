"""Interface of a tracking store for a server, with the methods that no client may call."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, TypeVar

from det_core.interfaces.account_records import AccessTokenRecord, Role, TokenKind, TokenScope, UserRecord
from det_core.interfaces.records import MAX_STEPS
from det_core.interfaces.tracking import TrackingStore

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from det_core.interfaces.records import ExperimentRecord, Run, State
    from det_core.interfaces.webhook_records import Delivery, WebhookFormat, WebhookRecord

__all__ = ["Action", "Change", "ExperimentGroup", "RungCount", "ServerStore", "StoreCounts"]

_T = TypeVar("_T")
SHOWN_OF_TEXTS = 200
"""Number of characters that `ServerStore.runs_of_trials` returns of each text."""
SHOWN_OF_REASONS = 2000
"""Number of characters that `ServerStore.latest_runs` returns of each text."""


@dataclass
class Action:
    """Entry for the audit log."""

    user: str
    """Name of the user."""
    name: str
    """Name of the action, such as ``pause``."""
    target: str = ""
    """Object of the action, such as ``experiment 12``."""
    address: str = ""
    """Network address of the client, or an empty string if it is unknown."""


@dataclass
class Change:
    """Call whose writes are being made."""

    action: Action | None = None
    """Entry that the audit log gets with the first write, or None for no entry. It can be set until that write is
    committed, which is after the call if it is the only one."""
    confirm: Callable[[], None] = lambda: None
    """Function that each transaction calls before its commit. It raises an error if the change may not be made any
    longer, because the transaction has waited or others of the call were made before it."""


@dataclass(frozen=True, kw_only=True)
class StoreCounts:
    """Numbers of records in a tracking store."""

    experiments: Mapping[State, int]
    """Experiments by state. States without any may be left out."""
    trials: Mapping[State, int]
    """Trials by state."""
    without_runner: int
    """Experiments that should run, but whose runner is lost."""
    webhook_events: int
    """Events that webhooks have not received yet."""


MOST_MEMBERS = 200
"""Maximum number of experiments of a group of which all ids are returned."""


@dataclass(frozen=True, kw_only=True)
class ExperimentGroup:
    """Experiments that have the same value."""

    value: float | str | None
    """The value, or None if they have none."""
    is_mixed: bool
    """Whether they are those whose trials have different values."""
    count: int
    """Number of all experiments of the group."""
    experiments: Sequence[ExperimentRecord]
    """Those on the page."""
    members: Sequence[int] = ()
    """Ids of all of them. Empty if none is on the page, or if they are more than `MOST_MEMBERS`."""


@dataclass(frozen=True, kw_only=True)
class RungCount:
    """Trials that a search has asked to train to a length, and to none beyond."""

    length: int
    """The length, in the searcher's unit."""
    trials: int
    """Number of trials."""
    reached: int
    """Number of those that have trained to it."""


class ServerStore(TrackingStore):
    """Tracking store for a server, which checks passwords and tokens and writes the audit log.

    Passwords and tokens are hashed by the caller.
    """

    @abstractmethod
    def execute(self, call: Callable[[Change], _T], *, call_id: str | None = None) -> _T:
        """Make a call whose write, entry in the audit log and remembered answer are one transaction.

        A call that opens several transactions, such as a deletion in pieces, has the entry in the first one and the
        answer in the last one. A call that writes nothing has neither.

        Args:
            call: function that calls a method of this store, or several that do not depend on each other, and does
                nothing else that takes long. It is repeated while the database is unavailable.
            call_id: ``LANE-NUMBER`` of the call of a client that may repeat it, which then takes effect once. Calls of
                one lane follow each other, and their numbers ascend. The result must be bytes.

        Returns:
            The result of ``call``, or the remembered one.

        Raises:
            TrackingError: a later call of the lane was answered before.
        """

    def record_change(self, action: Action, change: Callable[[], _T]) -> _T:
        """Make a change together with an entry in the audit log, and return the result.

        Args:
            action: the entry. Its target can be set by ``change``, if only the result tells it.
            change: function that changes records, as ``call`` of `execute`.
        """

        def call(recorded: Change) -> _T:
            recorded.action = action
            return change()

        return self.execute(call)

    @abstractmethod
    def create_user(self, name: str, *, role: Role, password: str) -> UserRecord:
        """Record a new, active user.

        Args:
            name: 1 to 64 letters of ASCII, digits and ``._@-``.
            role: the role.
            password: hash of the password. With an empty string, the user cannot log in.

        Raises:
            RecordExists: the name is in use.
            ValueError: the name has other characters or another length.
        """

    @abstractmethod
    def password_hash(self, name: str) -> str:
        """Return the hash of a user's password, or an empty string if the user is not active or has none."""

    @abstractmethod
    def edit_user(
        self, name: str, *, role: Role | None = None, password: str | None = None, active: bool | None = None
    ) -> UserRecord:
        """Change a user. None leaves a value unchanged.

        A new password and ``active=False`` delete the user's access tokens, which ends all sessions.

        Returns:
            The changed user.

        Raises:
            RecordInUse: the user is the last active admin, and would no longer be one.
        """

    @abstractmethod
    def add_access_token(
        self,
        digest: str,
        *,
        user: str,
        kind: TokenKind,
        scope: TokenScope,
        label: str = "",
        expires: datetime | None = None,
        trial_id: int | None = None,
        run_id: int | None = None,
        parent_id: int | None = None,
        password: str | None = None,
    ) -> AccessTokenRecord:
        """Record a new access token, and delete those that have expired.

        Args:
            digest: hash of the token's secret, 64 hexadecimal digits.
            user: name of the user, or an empty string for a run that belongs to no user.
            kind: kind of the token.
            scope: limit of the role.
            label: purpose of the token.
            expires: time from which it is invalid, or None if that is never.
            trial_id: trial of a token of the kind `TokenKind.RUN`.
            run_id: run of a token of the kind `TokenKind.RUN`.
            parent_id: token that its user presented to create it, with which it ends.
            password: hash that the user's password must have, or None if any will do.

        Raises:
            RecordNotFound: there is no such user, or the user is not active or has another password.
            RecordExists: there is a token with this digest.
            RecordInUse: the user has 1000 others of this kind already, which is not `TokenKind.RUN`.
            ValueError: the digest is not one, or ``user``, ``trial_id`` and ``run_id`` do not fit ``kind``.
        """

    @abstractmethod
    def access_token(self, digest: str) -> AccessTokenRecord:
        """Return the token with this digest.

        Raises:
            RecordNotFound: it or its parent is unknown or has expired, or its user is not active.
        """

    @abstractmethod
    def extend_access_token(self, token_id: int, *, expires: datetime) -> None:
        """Change the time from which a token is invalid. Do nothing if it does not exist or has expired."""

    @abstractmethod
    def record_action(self, action: Action) -> None:
        """Append an entry to the audit log for what is no change of records, such as a login."""

    @abstractmethod
    def counts(self) -> StoreCounts:
        """Return the numbers of records for monitoring, in one transaction."""

    @abstractmethod
    def experiment_groups(
        self,
        group_by: str,
        *,
        states: Sequence[State] = (),
        name: str | None = None,
        label: str | None = None,
        archived: bool | None = None,
        where: str = "",
        order: str = "id",
        sort_by: str = "",
        reverse: bool = False,
        limit: int,
        offset: int = 0,
    ) -> list[ExperimentGroup]:
        """Return the groups of experiments by a value, with those experiments that are on a page.

        Numbers come first, then texts, then the experiments whose trials have different values, then those without one.

        Args:
            group_by: name of the value, as in filters.
            states: as of `experiments`, and so are the following.
            name: include only names that contain this text.
            label: include only experiments with this label.
            archived: include only archived or only other experiments.
            where: include only experiments for which this filter holds.
            order: sort key within a group.
            sort_by: name of a value that replaces ``order``.
            reverse: reverse the sort order within a group.
            limit: maximum number of experiments.
            offset: number of experiments to skip, in the order of their groups.

        Raises:
            FilterError: no trial has a value of this name, or an experiment may have several, such as labels.
            CallTooLarge: that takes too long.
        """

    @abstractmethod
    def rung_counts(self, experiment_id: int) -> list[RungCount]:
        """Return for each length that the search asks of trials how many have it, the least first."""

    @abstractmethod
    def report_times(
        self, trial_ids: Collection[int], *, group: str, points: int = 1000, after: int = -1, until: int = MAX_STEPS
    ) -> dict[int, list[tuple[int, float]]]:
        """Return for each trial the (step, time) pairs of its reports by step, in seconds since 1970.

        A trial with more than ``points`` reports has some of them, spread evenly over its steps, and the last.

        Args:
            trial_ids: the trials, in the order of the result.
            group: group of the reports.
            points: number of points to which long trials are reduced, at least 1.
            after: read only reports of later steps than this.
            until: read only reports of steps up to and including this.
        """

    @abstractmethod
    def values_of_trials(self, trial_ids: Collection[int], names: Sequence[str]) -> dict[int, list[float | str | None]]:
        """Return values of the trials that exist, by the names that filters have for them.

        Args:
            trial_ids: ids of the trials.
            names: names of hyperparameters, metrics or fields, such as ``optimizer.lr``.

        Returns:
            For each trial the values in the order of the names, or None where it has no number and no text.

        Raises:
            CallTooLarge: that takes too long.
        """

    @abstractmethod
    def latest_values(self, trial_ids: Collection[int], metric: str, *, group: str) -> dict[int, tuple[int, float]]:
        """Return the step and the newest finite value of a metric, for each trial that has one.

        A metric that none of the last 100 reports of its group has is not found.

        Args:
            trial_ids: the trials. Those that do not exist are ignored.
            metric: name of the metric.
            group: group of the metric.
        """

    @abstractmethod
    def runs_of_trials(self, trial_ids: Collection[int], *, limit: int) -> list[Run]:
        """Return the first runs of all trials by trial, then the second ones, and so on.

        Args:
            trial_ids: the trials. Those that do not exist are ignored.
            limit: maximum number of runs.

        Returns:
            The runs, with the first `SHOWN_OF_TEXTS` characters of each text.
        """

    @abstractmethod
    def latest_runs(self, trial_id: int, *, limit: int) -> list[Run]:
        """Return the latest runs of a trial in their order, with the first `SHOWN_OF_REASONS` characters of each text.

        Args:
            trial_id: the trial.
            limit: maximum number of runs.
        """

    @abstractmethod
    def trials_of_checkpoints(self, uuids: Collection[str]) -> dict[str, int]:
        """Return the ids of the trials that wrote checkpoints, without reading more of them.

        Args:
            uuids: the checkpoints. Those that do not exist are left out of the result.
        """

    @abstractmethod
    def create_webhook(
        self, name: str, *, url: str, key: str, format: WebhookFormat, states: Sequence[State], private: bool
    ) -> WebhookRecord:
        """Record a receiver of events.

        Args:
            name: a new name of 1 to 64 letters of ASCII, digits and ``._@-``.
            url: its URL, with a reference in place of what is secret.
            key: reference to the secret that signs requests.
            format: format of the bodies.
            states: states to announce.
            private: whether the receiver may have a private address.

        Raises:
            RecordExists: the name is in use.
            ValueError: the name has other characters or another length, or webhooks cannot announce one of the states.
        """

    @abstractmethod
    def webhooks(self) -> list[WebhookRecord]:
        """Return all webhooks by name."""

    @abstractmethod
    def delete_webhook(self, name: str) -> None:
        """Delete a webhook and what it has not delivered.

        Raises:
            RecordNotFound: there is no such webhook.
        """

    @abstractmethod
    def claim_delivery(self, webhook_ids: Sequence[int]) -> Delivery | None:
        """Return an event that is due and the oldest of its webhook, or None if there is none.

        Other processes do not get it for a minute, after which it is due again.
        """

    @abstractmethod
    def confirm_delivery(self, delivery: Delivery, *, error: str = "") -> None:
        """Forget an event that was delivered, or given up.

        Args:
            delivery: the event.
            error: why it was given up.
        """

    @abstractmethod
    def postpone_delivery(self, delivery: Delivery, *, seconds: float, error: str) -> None:
        """Let an event and those after it wait after an attempt that failed.

        Args:
            delivery: the event of the attempt.
            seconds: time until the next attempt.
            error: why it failed.
        """
