"""The list of jars, what counts as missing, and where the machine says that they come from."""

from __future__ import annotations

import hashlib
import subprocess
import threading
from pathlib import Path

import pytest

from services.plane.machine import jars
from services.plane.machine.errors import StackError
from services.plane.machine.java import find_java
from services.plane.machine.trust_store import machine_authorities, write_trust_store


def locked(content: bytes) -> jars.Jar:
    return jars.Jar("kafka", "org.example", "thing", "1.0", hashlib.sha256(content).hexdigest())


def test_the_lock_has_every_jar_asked_for_and_no_address() -> None:
    lock = jars.locked_jars()
    named = {(jar.consumer, jar.organisation, jar.module, jar.revision) for jar in lock}
    asked = {(consumer, *root) for consumer, roots in jars.ROOTS.items() for root in roots}
    assert asked <= named
    assert all(len(jar.sha256) == 64 for jar in lock)
    assert not any("/" in field for jar in lock for field in (jar.organisation, jar.module, jar.revision))
    names = [(jar.consumer, jar.file_name) for jar in lock]
    assert len(set(names)) == len(names)


def test_a_jar_with_other_bytes_is_missing(tmp_path: Path) -> None:
    jar = locked(b"right")
    assert jars.missing_jars(tmp_path, [jar]) == [jar]
    (tmp_path / "kafka").mkdir()
    (tmp_path / "kafka" / "thing-1.0.jar").write_bytes(b"wrong")
    assert jars.missing_jars(tmp_path, [jar]) == [jar]
    (tmp_path / "kafka" / "thing-1.0.jar").write_bytes(b"right")
    assert jars.missing_jars(tmp_path, [jar]) == []


def test_a_class_path_without_its_jars_says_what_to_run(tmp_path: Path) -> None:
    with pytest.raises(StackError, match="run make setup"):
        jars.classpath(tmp_path, "spark")


@pytest.mark.parametrize(
    ("mirror_of", "is_taken"),
    [("central", True), ("*", True), ("external:*", True), ("other", False), ("*,!central", False)],
)
def test_a_maven_mirror_of_the_central_repository_is_honoured(
    tmp_path: Path, mirror_of: str, *, is_taken: bool
) -> None:
    address = "https://registry.example/maven"
    (tmp_path / "settings.xml").write_text(
        '<settings xmlns="http://maven.apache.org/SETTINGS/1.0.0"><mirrors><mirror>'
        f"<mirrorOf>{mirror_of}</mirrorOf><url>{address}</url></mirror></mirrors></settings>"
    )
    files = [tmp_path / "absent.xml", tmp_path / "settings.xml"]
    assert jars.maven_mirror(files) == (address if is_taken else None)


def test_the_environments_proxy_is_put_as_java_wants_it() -> None:
    properties = jars.proxy_properties({"https_proxy": "http://proxy.example:3128"})
    assert properties == ["-Dhttps.proxyHost=proxy.example", "-Dhttps.proxyPort=3128"]
    assert jars.proxy_properties({}) == []


def test_settings_that_are_not_there_are_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DEEPCLEAN_IVY_SETTINGS", str(tmp_path / "absent.xml"))
    with pytest.raises(StackError, match=r"DEEPCLEAN_IVY_SETTINGS names .* correct or unset it"):
        jars.fetch_jars(tmp_path)


def test_a_registry_that_cannot_be_reached_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = tmp_path / "ivysettings.xml"
    settings.write_text(
        f'<ivysettings><caches defaultCacheDir="{tmp_path}/cache"/><settings defaultResolver="nowhere"/><resolvers>'
        '<ibiblio name="nowhere" m2compatible="true" root="http://127.0.0.1:9/"/></resolvers></ivysettings>'
    )
    monkeypatch.setenv("DEEPCLEAN_IVY_SETTINGS", str(settings))
    jar = locked(b"any")
    ivy = jars.Ivy(find_java(), tmp_path)
    with pytest.raises(StackError, match=r"could not be fetched .* run the same command again") as caught:
        ivy.retrieve("kafka", [(jar.organisation, jar.module, jar.revision)], is_transitive=False)
    assert "\n" not in str(caught.value)


def test_a_trust_store_has_every_authority(tmp_path: Path) -> None:
    authorities = machine_authorities()
    write_trust_store(tmp_path / "store.jks", authorities)
    written = (tmp_path / "store.jks").read_bytes()
    assert written.startswith(bytes.fromhex("feedfeed00000002") + len(authorities).to_bytes(4, "big"))
    assert all(certificate in written for certificate in authorities)


def test_one_set_up_waits_for_another_of_the_same_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ivy's cache is the user's, and Ivy reads files that another one has half written."""
    monkeypatch.setenv("HOME", str(tmp_path))
    steps: list[str] = []

    def other() -> None:
        with jars._only_one():
            steps.append("other")

    with jars._only_one():
        thread = threading.Thread(target=other)
        thread.start()
        locked_by_other = subprocess.run(
            ["flock", "--nonblock", tmp_path / ".ivy2" / "deepclean.lock", "true"], check=False
        )
        assert locked_by_other.returncode == 1
        steps.append("one")
    thread.join()
    assert steps == ["one", "other"]
