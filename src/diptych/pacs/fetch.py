"""`fetch_study`: one study from a server into the archive, at most once; with `priors`, older ones of the patient too.

    list series → is it settled? → note the beginning → fetch what is missing → take in and index → note the end

Also `study_fingerprint`, by which a study that has changed since is known, and `find_priors`. Knows remotes, the door
and the ledger; no protocol.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

from diptych.errors import DiptychError, PacsError
from diptych.pacs.incoming import Incoming, Outcome
from diptych.pacs.remote import Remote, SeriesEntry, StudyEntry, Wanted
from diptych.progress import Progress, silent


def fetch_study(
    remote: Remote, study_uid: str, incoming: Incoming, *, again: bool = False, progress: Progress = silent
) -> Outcome:
    """Bring one study in, unless it is settled as it is now; `again` does it anyway.

    Every end is in the ledger when this returns; an unreachable server makes the study wait.
    """
    study = incoming.names.study(study_uid)
    try:
        series = wanted_series(remote, study_uid, incoming, study)
    except (PacsError, OSError) as error:
        incoming.ledger.begin(study, remote.server.name, "")
        return incoming.wait(study, error)
    fingerprint = study_fingerprint(series)
    if not again and incoming.ledger.is_settled(study, fingerprint):
        row = incoming.ledger.study(study)
        assert row is not None
        return Outcome(study, row.state, row.volume_key, row.reason or "unchanged")
    if not incoming.ledger.begin(study, remote.server.name, fingerprint):
        row = incoming.ledger.study(study)
        return Outcome(study, "refused", reason=row.reason if row else "")
    try:
        for place, one in enumerate(series):
            progress(place, len(series) + 1, "fetching")
            remote.fetch(
                study_uid,
                one.uid,
                lambda uid, within=one.uid: incoming.holds(study_uid, within, uid),  # type: ignore[misc]
                lambda dataset: _take(incoming, dataset, remote.server.name, study),
            )
    except (PacsError, OSError, MemoryError) as error:
        return incoming.wait(study, error)
    except DiptychError as error:
        incoming.ledger.failed(study, str(error), state="refused")
        return Outcome(study, "refused", reason=str(error))
    return incoming.admit(study, progress=progress)


def _take(incoming: Incoming, dataset: object, server: str, study: str) -> None:
    if incoming.take(dataset, server) != study:
        raise PacsError(f"server {server}: sent an instance of another study than was asked for; ask its administrator")


def wanted_series(remote: Remote, study_uid: str, incoming: Incoming, study: str) -> list[SeriesEntry]:
    """MR series of a study that are not our own results."""
    own = incoming.ledger.sent(study)
    return [
        one
        for one in remote.series(study_uid)
        if one.modality in incoming.config.rules.modality
        and one.uid not in own
        and not one.description.startswith("Diptych")
    ]


def study_fingerprint(series: Iterable[SeriesEntry]) -> str:
    """Changes whenever a series is added, removed or grows."""
    parts = sorted(f"{one.uid} {one.instances}" for one in series)
    return hashlib.blake2b("\n".join(parts).encode(), digest_size=16).hexdigest()


def prior_uids(remote: Remote, study_uid: str, incoming: Incoming, *, most: int) -> list[str]:
    """StudyInstanceUIDs of a study's priors; none where the server does not tell whose it is."""
    if most < 1:
        return []
    current = next(iter(remote.studies(Wanted(modality="", study_uid=study_uid))), None)
    return [] if current is None else [one.uid for one in find_priors(remote, current, incoming, most=most)]


def find_priors(remote: Remote, current: StudyEntry, incoming: Incoming, *, most: int) -> Sequence[StudyEntry]:
    """Older studies of the same patient that the rules want, newest first."""
    if most < 1 or not current.patient_id or not current.date:
        return []
    asked = Wanted(patient_id=current.patient_id, until=current.date)
    rules = incoming.config.rules
    older = [
        one
        for one in remote.studies(asked)
        if one.uid != current.uid and one.patient_id == current.patient_id and rules.wants(one.description)
    ]
    return sorted(older, key=lambda one: one.date, reverse=True)[:most]
