"""Which role each route needs, in one table. A route that is not listed is for administrators only.

Knows operation names and roles. The guards have found out who asks; this decides whether they may.
"""

from __future__ import annotations

from fastapi import Request

from diptych.server.problems import Problem
from diptych.server.sign_in import WHO

OPEN = ("getHealth", "openSession", "closeSession")
"""Operations for everybody: they hold no patient data."""
ANY_USER = ("getSession",)
"""Operations for whoever has signed in, whatever their roles."""
ROLE_OF: dict[str, str] = {
    "getArchive": "search",
    "listPatients": "search",
    "getJob": "search",
    "listVolumes": "search",
    "getVolume": "search",
    "search": "search",
    "findComparators": "search",
    "findSimilarPatients": "search",
    "findSimilarVolumes": "search",
    "getVolumeSlice": "read",
    "getVolumeLesion": "read",
    "getVolumeSignal": "read",
    "getVolumeChannel": "read",
    "getVolumeLabels": "read",
    "exportVolumePrediction": "read",
    "getChange": "read",
    "getChangeSlice": "read",
    "getMovedChannel": "read",
    "viewSubject": "read",
    "explainMatch": "read",
    "exportAnswer": "read",
    "uploadPatient": "upload",
    "addFiles": "upload",
    "getUpload": "upload",
    "correctUpload": "upload",
    "deleteUpload": "upload",
    "getUploadSlice": "upload",
    "getUploadLesion": "upload",
    "getUploadSignal": "upload",
    "getUploadChannel": "upload",
    "getUploadLabels": "upload",
    "exportUploadPrediction": "upload",
    "archiveUpload": "curate",
    "getPacsPlace": "read",
    "sendResults": "send",
}


def role_of(operation: str) -> str | None:
    """The role that an operation needs; None where signing in is enough, or not even that is asked."""
    return None if operation in (*OPEN, *ANY_USER) else ROLE_OF.get(operation, "administer")


async def check_role(request: Request) -> None:
    """Refuse who may not; runs before every route of the API."""
    role = role_of(getattr(request.scope.get("route"), "operation_id", None) or "")
    who = WHO.get()
    if role is not None and not who.may(role):
        raise Problem(403, f"{who.name} may not do this: it needs the role {role}", code="role_needed")
