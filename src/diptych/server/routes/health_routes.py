"""For whoever watches the service: is it up, is it ready, and its figures. None of them tells of a patient."""

from __future__ import annotations

import psutil
from fastapi import APIRouter, Response
from fastapi.responses import JSONResponse

from diptych.server.service import Service, TheService

router = APIRouter(include_in_schema=False)
OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"


@router.get("/health")
def health(service: TheService) -> JSONResponse:
    """Whether the process answers, and what is wrong with what it stands on."""
    problems = service.problems()
    return JSONResponse({"status": "degraded" if problems else "ok", "problems": problems})


@router.get("/ready")
def ready(service: TheService) -> JSONResponse:
    """Whether searches are answered: 503 while the archive is warming up, or cannot be searched."""
    waiting = service.warming()
    return JSONResponse(
        {"ready": not waiting}, 503 if waiting else 200, headers={"Retry-After": "2"} if waiting else None
    )


@router.get("/metrics")
def metrics(service: TheService) -> Response:
    """Figures as OpenMetrics, for users who have signed in, whatever their roles."""
    return Response("\n".join([*service.observation.lines(), *_gauges(service), "# EOF", ""]), media_type=OPENMETRICS)


def _gauges(service: Service) -> list[str]:
    catalogue = service.library.current.catalogue
    values = {
        "diptych_volumes": len(catalogue.volumes),
        "diptych_slices": len(catalogue.index),
        "diptych_uploads": len(service.uploads),
        "diptych_problems": len(service.problems()),
        "diptych_resident_bytes": psutil.Process().memory_info().rss,
    }
    out = [line for name, value in values.items() for line in (f"# TYPE {name} gauge", f"{name} {value}")]
    caches = service.caches()
    for name, which in (("diptych_cache_bytes", "used"), ("diptych_cache_limit_bytes", "capacity")):
        out.append(f"# TYPE {name} gauge")
        out += [f'{name}{{cache="{cache}"}} {getattr(kept, which)}' for cache, kept in caches.items()]
    out.append("# TYPE diptych_jobs gauge")
    out += [f'diptych_jobs{{state="{state}"}} {count}' for state, count in service.jobs.states().items()]
    return out
