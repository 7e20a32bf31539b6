"""The web service: an archive behind a typed REST API, and the reading room in front of it.

app        create_app: routes, guards, pages             running    a socket, uvicorn, Ctrl-C
settings   limits and who may come in                    guards     hosts, tokens, sizes, headers, the access log
problems   one JSON shape for every error                schemas, asked   what goes out, what comes in
library    the archive, always in its newest version     cases      one patient, archived or uploaded
uploads    a bounded store of strangers' files           jobs       long work with progress
pictures   arrays → PNG                                  asking     a request → retrieval → a response
routes/    thin: each function is one line of work       exporting  CSV, figures, NIfTI

Knows everything below it. Nothing here decides what is similar: that is `diptych.retrieval`.
"""

from __future__ import annotations

__all__: list[str] = []
