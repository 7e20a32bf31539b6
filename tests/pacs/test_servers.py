"""The administrator's file: what it takes, what it refuses."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from diptych.errors import InputError, UsageError
from diptych.pacs.servers import PacsConfig, Server, read_config

GOOD = '[servers.a]\nweb = "https://pacs/dicom-web"\ntoken_file = "a.token"\n'


def test_a_whole_file_is_read(configure: Callable[[str], PacsConfig], tmp_path: Path) -> None:
    config = configure(
        GOOD + '[servers.b]\ndimse = "10.0.0.7:104"\ntls = true\n[rules]\ndescription = ["*brain*"]\nnewest_days = 30\n'
        '[listen]\ncallers = ["SCANNER"]\nserver = "a"\n[deidentify]\nvault = "/secret"\n'
    )
    assert config.server("a").token_file == tmp_path / "a.token"
    assert config.server("b").address == ("10.0.0.7", 104)
    assert config.rules.wants("MR BRAIN plain")
    assert not config.rules.wants("MR Knee")
    assert config.vault == Path("/secret")
    with pytest.raises(UsageError, match="known: a, b"):
        config.server("c")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("servers = 3 =", "cannot be read as TOML"),
        ("[server.a]\n", r"\[server\] is not known"),
        ('[servers.a]\nweb = "https://x/y"\nretry = 3\n', "retry is not known; keys are"),
        ("[servers.a]\n", "needs either web or dimse"),
        ('[servers.a]\nweb = "https://u:p@x/y"\n', "holds a secret"),
        ('[servers.a]\nweb = "http://10.0.0.7/y"\n', "in the clear"),
        ('[servers.a]\nweb = "ftp://10.0.0.7/y"\n', "must be an address"),
        ('[servers.a]\ndimse = "10.0.0.7:104"\n', "in the clear"),
        ('[servers.a]\ndimse = "10.0.0.7"\n', "host:port"),
        ('[servers.a]\ndimse = "127.0.0.1:104"\ntitle = "' + "A" * 17 + '"\n', "1 to 16 characters"),
        (GOOD + 'viewer = "javascript:alert(1)//{study}"\n', "viewer must be"),
        (GOOD + 'timeout = "long"\n', "timeout must be a number"),
        (GOOD + 'cert_file = "x.pem"\n', "cert_file and key_file"),
        ('[rules]\nmodality = ["CT"]\n', "must be"),
        ('[listen]\nhost = "0.0.0.0"\n', "in the clear"),
        ('[listen]\nserver = "x"\n', "not one of"),
        ("[listen]\ndisk_gb = 0\n", "disk_gb above 0"),
    ],
)
def test_what_cannot_be_is_one_line(text: str, reason: str, configure: Callable[[str], PacsConfig]) -> None:
    with pytest.raises(InputError, match=reason) as caught:
        configure(text)
    assert "\n" not in str(caught.value)


def test_secrets_are_for_their_owner_only(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("swordfish\n")
    server = Server("a", web="https://x", token_file=tmp_path / "token")
    (tmp_path / "token").chmod(0o644)
    with pytest.raises(InputError, match="others may read this secret"):
        server.secret(server.token_file)
    (tmp_path / "token").chmod(0o600)
    assert server.secret(server.token_file) == "swordfish"
    assert "swordfish" not in repr(server)


def test_a_file_that_everybody_writes_is_refused(tmp_path: Path) -> None:
    (tmp_path / "pacs.toml").write_text(GOOD)
    (tmp_path / "pacs.toml").chmod(0o666)
    with pytest.raises(InputError, match="everybody may write it"):
        read_config(tmp_path / "pacs.toml")
