"""`diptych pacs demo`: a PACS beside Diptych, on this machine and with patients that it makes itself.

    phantoms → archive
    phantom studies as DICOM → Orthanc → watcher → intake → archive → search → results → Orthanc

Ends in the reading room, with the watcher behind it (`--serve`), or says what went back and what a second client reads.
Needs Orthanc with its DICOMweb plugin. A second run reuses what is there.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from diptych.errors import PacsError, UsageError

if TYPE_CHECKING:
    from diptych.pacs.incoming import Incoming
    from diptych.pacs.orthanc import Orthanc
    from diptych.pacs.watch import Watcher

SEED = 2023
"""Names the archive's patients, the same as of `diptych demo`."""
STUDIES = ((3, "DEMO-1", "20260105"), (5, "DEMO-2", "20260112"))
"""Seed, PatientID and date of the studies that the PACS holds."""
CONFIG = """# Written by diptych pacs demo: one server, on this machine.
[servers.demo]
web = "{url}/dicom-web"
changes = "{url}"
viewer = "{url}/dicom-web/studies/{{study}}/series"

[rules]
stable_seconds = 2
poll_seconds = 2
"""


def demo(
    out: Annotated[Path, typer.Option("--out", help="Folder for everything the demo makes.")] = Path("demo-pacs"),
    patients: Annotated[int, typer.Option(min=1, help="Phantoms that the archive holds before.")] = 8,
    studies: Annotated[int, typer.Option(min=1, max=len(STUDIES), help="Studies that the PACS holds.")] = len(STUDIES),
    serve: Annotated[bool, typer.Option("--serve", help="Then serve the archive to a browser, until Ctrl-C.")] = False,
    port: Annotated[int, typer.Option(min=0, max=65535, help="Port to serve on; 0 takes any free one.")] = 8765,
) -> None:
    """Start an Orthanc of its own with phantom studies, watch it, take them in, and give results back.

    About two minutes of processor time for each study. Research use only, not a medical device.
    """
    from diptych.pacs.orthanc import Orthanc, find_orthanc

    if find_orthanc() is None:
        raise UsageError(
            "Orthanc: not found with its DICOMweb plugin; apt-get install orthanc orthanc-dicomweb, then run this again"
        )
    out.mkdir(parents=True, exist_ok=True)
    _fill_archive(out, patients)
    _make_studies(out / "studies", studies)
    orthanc = Orthanc(out / "orthanc", settings={"DicomServerEnabled": False}).start()
    try:
        orthanc.put(out / "studies")
        print(f"{orthanc.url}: an Orthanc with {studies} phantom studies, answering this machine only", flush=True)
        _run(out, orthanc, serve, port)
    finally:
        orthanc.stop()


def _fill_archive(out: Path, patients: int) -> None:
    from diptych.cli.demo_command import _index_patients, _make_patients
    from diptych.model import load_model
    from diptych.model.shipped import shipped_model
    from diptych.phantom import PhantomConfig

    _make_patients(out / "patients", patients, PhantomConfig())
    _index_patients(out / "patients", out / "archive", load_model(), shipped_model())


def _make_studies(folder: Path, count: int) -> None:
    """Heads with skull, scalp and four oblique series each, as a scanner gives them."""
    from diptych.files import replacing_folder
    from diptych.phantom.phantom_config import PhantomConfig
    from diptych.phantom.phantom_dicom import Person, write_study
    from diptych.phantom.raw_head import usual_study

    for seed, patient, day in STUDIES[:count]:
        if (folder / patient).is_dir():
            continue
        print(f"{folder / patient}: drawing a head and scanning it", flush=True)
        folder.mkdir(parents=True, exist_ok=True)
        with replacing_folder(folder / patient) as part:
            write_study(
                part,
                seed=seed,
                config=PhantomConfig(voxel_mm=2.0),
                acquisitions=usual_study(seed, in_plane_mm=1.5, thickness_mm=4.0),
                person=Person(f"Phantom^{patient}", patient, "19570302", day, "Phantom Hospital"),
            )


def _run(out: Path, orthanc: Orthanc, serve: bool, port: int) -> None:
    from diptych.cli.pacs_command import print_outcome
    from diptych.pacs.incoming import Incoming
    from diptych.pacs.remote import connect
    from diptych.pacs.servers import read_config
    from diptych.pacs.watch import Watcher

    (out / "pacs.toml").write_text(CONFIG.format(url=orthanc.url), encoding="utf-8")
    if serve:
        _serve(out, orthanc, port)
        return
    config = read_config(out / "pacs.toml")
    incoming = Incoming(out / "archive", config)
    _wait_for(
        Watcher(connect(config.server("demo")), incoming, report=print_outcome), len(list((out / "studies").iterdir()))
    )
    _send(incoming, orthanc)


def _wait_for(watcher: Watcher, studies: int) -> None:
    """Watch until every study came to an end; the feed calls a study stable a moment after its last image."""
    import time

    ledger, end = watcher.incoming.ledger, time.monotonic() + 1800
    while len(ledger.studies("done", "refused")) < studies and time.monotonic() < end:
        watcher.step()
        time.sleep(0.5)
    if failed := [row for row in ledger.studies() if row.state != "done"]:
        raise PacsError(f"{len(failed)} studies did not come in: {failed[0].reason}")


def _send(incoming: Incoming, orthanc: Orthanc) -> None:
    """Give results back, twice, and look at them as somebody else would."""
    from diptych.pacs.send import Desk, send_study

    desk = Desk.open(incoming.archive, incoming.config)
    for row in incoming.ledger.studies("done"):
        first, second = send_study(desk, row.study), send_study(desk, row.study)
        print(
            f"{first.volume_key}: {first.instances} instances sent back ({', '.join(first.stored) or 'there already'});"
            f" sent again, {second.instances} were stored"
        )
        _read_back(orthanc, desk.vault.original(row.study).study_uid)
    print("Research use only, not a medical device.")


def _read_back(orthanc: Orthanc, study: str) -> None:
    from dicomweb_client.api import DICOMwebClient

    client: Any = DICOMwebClient(f"{orthanc.url}/dicom-web")
    for series in client.search_for_series(study, fields=["SeriesDescription", "NumberOfSeriesRelatedInstances"]):
        words = series.get("0008103E", {}).get("Value", [""])[0]
        if str(words).startswith("Diptych"):
            count = len(client.retrieve_series(study, series["0020000E"]["Value"][0]))
            print(f"  a second client reads {count} of {series['00080060']['Value'][0]}: {words}")


def _serve(out: Path, orthanc: Orthanc, port: int) -> None:
    """The reading room in front; the watcher behind it, in a process of its own."""
    from diptych.cli.serve_command import _announce, _leave, _offer
    from diptych.retrieval import Archive
    from diptych.server.serve import serve
    from diptych.server.settings import ServerSettings

    archive, config = out / "archive", out / "pacs.toml"
    watch = [
        sys.executable,
        "-m",
        "diptych",
        "pacs",
        "watch",
        "demo",
        "--archive",
        str(archive),
        "--config",
        str(config),
    ]
    watcher = subprocess.Popen(watch)
    print(
        "Studies appear in the work list as they come in, a minute or two each; Export sends results back.", flush=True
    )
    try:
        settings = ServerSettings(port=port, pacs=config)
        serve([Archive.open(archive)], settings, ready=lambda address: _announce([archive], address), link=_offer)
    finally:
        watcher.kill()  # a study that is being taken in begins again the next time
        watcher.wait()
        orthanc.stop()
    _leave()
