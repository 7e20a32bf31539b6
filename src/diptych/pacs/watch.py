"""`Watcher`: follows a server and brings new studies in, each once, when nothing is added to them any more.

    Orthanc's feed of changes, or a list asked for again and again → rules → stable? → fetch, take in, index → note

How far the feed was followed is noted only when everything before is settled, and a study is settled only when it is in
the archive or refused for good: a kill at any point loses nothing and doubles nothing. What waits comes again with
growing pauses. Knows remotes, rules and the door; no protocol but the feed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from threading import Event
from typing import Any, Protocol

from diptych.errors import PacsError, UsageError
from diptych.files import FolderLock
from diptych.pacs.fetch import fetch_study, prior_uids, study_fingerprint, wanted_series
from diptych.pacs.incoming import Incoming, Outcome
from diptych.pacs.remote import Remote, StudyEntry, Wanted
from diptych.progress import Progress, silent

PAGE = 200
STABLE = "StableStudy"
Report = Callable[[Outcome], None]
Complain = Callable[[str], None]


class Feed(Protocol):
    """A server with Orthanc's changes."""

    def change_feed(self, since: int, limit: int = PAGE) -> dict[str, Any]: ...

    def last_change(self) -> int: ...

    def orthanc_study(self, resource: str) -> StudyEntry | None: ...


@dataclass
class _Seen:
    """A study that is not settled, or was when it had so many images."""

    entry: StudyEntry
    sequence: int = 0
    """Its place in the feed; 0 where there is none."""
    fingerprint: str = ""
    since: float = 0.0
    """When it was first seen to be as it is."""
    settled: bool = False
    told: str = ""
    """What was last reported of it, which is not repeated."""


class Watcher:
    """Follows one server; `run` until `stop` is set, `step` does what can be done now."""

    def __init__(
        self,
        remote: Remote,
        incoming: Incoming,
        *,
        report: Report = lambda outcome: None,
        complain: Complain = lambda line: None,
        progress: Progress = silent,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self.remote = remote
        self.incoming = incoming
        self.report = report
        self.complain = complain
        self.progress = progress
        self.now = now
        self._seen: dict[str, _Seen] = {}
        self._read = incoming.ledger.cursor(remote.server.name)
        """How far the feed was read; the ledger's cursor may be behind."""
        self._complaint = ""

    def run(self, stop: Event, *, until_quiet: bool = False) -> None:
        """Step by step with the pauses of the rules; with `until_quiet`, until nothing comes by itself any more."""
        lock = _only_watcher(self.incoming.folder, self.remote.server.name)
        try:
            while not stop.is_set():
                busy = self.step(stop)
                if until_quiet and not busy and (self._complaint or not any(map(self._undecided, self._open()))):
                    return
                stop.wait(min(0.05, self.incoming.config.rules.poll_seconds) if busy else self._pause())
        finally:
            lock.release()

    def _undecided(self, seen: _Seen) -> bool:
        """Whether a study may still come in by itself, without anything being mended."""
        row = self.incoming.ledger.study(self.incoming.names.study(seen.entry.uid))
        return row is None or row.state != "waiting"

    def _pause(self) -> float:
        rules = self.incoming.config.rules
        return max(0.05, min(rules.poll_seconds, rules.stable_seconds or rules.poll_seconds))

    def step(self, stop: Event | None = None) -> bool:
        """Look for studies once and bring in those that are stable; whether one came in."""
        done = False
        try:
            self._look()
            for seen in list(self._open()):
                if stop is None or not stop.is_set():
                    done |= self._try(seen)
            self._complaint = ""
        except (PacsError, OSError) as error:
            if str(error) != self._complaint:  # a server that is away is one line, not one each half minute
                self._complaint = str(error)
                self.complain(str(error))
        self._move_cursor()
        return done

    def _look(self) -> None:
        for entry, sequence in self._feed() if self.remote.server.changes else self._poll():
            self._note(entry, sequence)

    def _feed(self) -> Iterator[tuple[StudyEntry, int]]:
        """Studies that the feed says are stable, from where it was left."""
        feed: Feed = self.remote  # type: ignore[assignment]
        if feed.last_change() < self._read:  # the server was set up anew: its feed begins again
            self._read = 0
        more = True
        while more:
            page = feed.change_feed(self._read, PAGE)
            for change in page.get("Changes", ()):
                if change.get("ChangeType") == STABLE and change.get("ResourceType") == "Study":
                    entry = feed.orthanc_study(str(change.get("ID", "")))
                    if entry is not None and self._wanted(entry):
                        yield entry, int(change["Seq"])
                self._read = max(self._read, int(change.get("Seq", 0)))
            more = not page.get("Done", True)

    def _poll(self) -> Iterator[tuple[StudyEntry, int]]:
        rules = self.incoming.config.rules
        since = "" if rules.newest_days is None else _days_ago(rules.newest_days)
        for modality in rules.modality:
            for entry in self.remote.studies(Wanted(modality=modality, since=since)):
                if self._wanted(entry):
                    yield entry, 0

    def _wanted(self, entry: StudyEntry) -> bool:
        rules = self.incoming.config.rules
        young = rules.newest_days is None or not entry.date or entry.date >= _days_ago(rules.newest_days)
        return bool(entry.uid) and young and rules.wants(entry.description)

    def _note(self, entry: StudyEntry, sequence: int) -> None:
        seen = self._seen.get(entry.uid)
        if seen is None:
            self._seen[entry.uid] = _Seen(entry, sequence)
        elif sequence > seen.sequence or entry.instances != seen.entry.instances:
            seen.entry, seen.settled, seen.told = entry, False, ""
            seen.sequence = seen.sequence or sequence  # the cursor stays behind the first that is not settled

    def _open(self) -> Iterator[_Seen]:
        return (seen for seen in self._seen.values() if not seen.settled)

    def _try(self, seen: _Seen) -> bool:
        """Bring a study in if it is stable and may be tried; whether it came in."""
        uid = seen.entry.uid
        study = self.incoming.names.study(uid)
        if not self.incoming.ledger.may_try(study):
            return False
        if not self._stable(seen, uid, study):
            return False
        outcome = fetch_study(self.remote, uid, self.incoming, progress=self.progress)
        seen.settled = outcome.state in ("done", "refused")
        line = f"{outcome.state} {outcome.reason}"
        if line != seen.told and outcome.reason != "unchanged":
            self.report(outcome)
        seen.told = line
        if outcome.state == "done" and outcome.reason != "unchanged":
            self._priors(uid)
        return seen.settled and outcome.reason != "unchanged"

    def _stable(self, seen: _Seen, uid: str, study: str) -> bool:
        """Whether nothing was added for long enough; the feed says so itself."""
        if seen.sequence:
            return True
        fingerprint = study_fingerprint(wanted_series(self.remote, uid, self.incoming, study))
        if self.incoming.ledger.is_settled(study, fingerprint):
            seen.settled = True
            return False
        if fingerprint != seen.fingerprint:
            seen.fingerprint, seen.since = fingerprint, self.now()
        return self.now() - seen.since >= self.incoming.config.rules.stable_seconds

    def _priors(self, uid: str) -> None:
        """Older studies of the same patient, as many as the rules want."""
        try:
            for prior in prior_uids(self.remote, uid, self.incoming, most=self.incoming.config.rules.priors):
                outcome = fetch_study(self.remote, prior, self.incoming, progress=self.progress)
                if outcome.reason != "unchanged":
                    self.report(outcome)
        except (PacsError, OSError) as error:
            self.complain(str(error))

    def _move_cursor(self) -> None:
        """Everything before the first study that is not settled needs no second look."""
        if not self.remote.server.changes:
            return
        waiting = [seen.sequence for seen in self._open() if seen.sequence]
        settled = min([self._read, *(sequence - 1 for sequence in waiting)])
        if settled != self.incoming.ledger.cursor(self.remote.server.name):
            self.incoming.ledger.move_cursor(self.remote.server.name, settled)
        self._seen = {uid: seen for uid, seen in self._seen.items() if not (seen.settled and seen.sequence)}


def _only_watcher(folder: Path, server: str) -> FolderLock:
    """Two watchers of one server would take each study in twice, for nothing."""
    lock = FolderLock(folder / f"watch-{server}.lock")
    if lock.acquire() is not None:
        raise UsageError(
            f"server {server}: is watched already for this archive; end the other diptych pacs watch first"
        )
    return lock


def _days_ago(days: int) -> str:
    return (date.today() - timedelta(days=days)).strftime("%Y%m%d")
