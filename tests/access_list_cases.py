"""Access lists as a real Apache Ozone 2.2.0 has made them: plays a recorded case on a plane in memory.

A case is a file of operations, and one of what Ozone has answered. The entries of the client that recorded them, which
Ozone adds to each new list, are left out. Entries are written as in Ozone: ``user:bob:rw[DEFAULT]``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from schemas import records
from schemas.records import Acl, AclIdentity, AclObject, AclRight, AclScope, BucketLayout
from services.client.errors import PlaneError
from services.client.plane import Plane

FOLDER = Path(__file__).parent / "conformance" / "access_lists"
CASES = sorted(file.name.removesuffix(".ops.jsonl") for file in FOLDER.glob("*.ops.jsonl"))
_LETTERS = dict(zip("rwcldxyan", AclRight, strict=True))
_LAYOUTS = {"OBS": BucketLayout.OBJECT_STORE, "FSO": BucketLayout.FILE_SYSTEM_OPTIMIZED}
_ENTRY = re.compile(r"(?P<identity>[a-z]+):(?P<name>[a-z]*):(?P<rights>[a-z]+)\[(?P<scope>[A-Z]+)\]")


def read_lines(case: str, kind: str) -> list[Any]:
    """Return the operations of a case, or what was expected."""
    return [json.loads(line) for line in (FOLDER / f"{case}.{kind}.jsonl").read_text("utf-8").splitlines()]


def entry_of(text: str) -> Acl:
    """Return the entry that a text names."""
    found = _ENTRY.fullmatch(text)
    assert found, text
    rights = tuple(_LETTERS[letter] for letter in _LETTERS if letter in found["rights"])
    return Acl(AclIdentity(found["identity"].upper()), found["name"], rights, AclScope(found["scope"]))


def text_of(acl: Acl) -> str:
    """Return an entry as a text."""
    rights = "".join(letter for letter, right in _LETTERS.items() if right in acl.rights)
    return f"{acl.identity.lower()}:{acl.name}:{rights}[{acl.scope}]"


def _object(line: Any) -> tuple[AclObject, str, str, str]:
    return AclObject(line["object"]), line["volume"], line.get("bucket", ""), line.get("path", "")


_COMMANDS: Mapping[str, Callable[[Any], Any]] = {
    "create_volume": lambda line: records.CreateVolume(line["volume"]),
    "create_bucket": lambda line: records.CreateBucket(line["volume"], line["bucket"], _LAYOUTS[line["layout"]]),
    "put_key": lambda line: records.PutKey(line["volume"], line["bucket"], line["key"], line["size"]),
    "delete_key": lambda line: records.DeleteKey(line["volume"], line["bucket"], line["key"]),
    "rename_key": lambda line: records.RenameKey(line["volume"], line["bucket"], line["from"], line["to"]),
    "rename_dir": lambda line: records.RenameDirectory(line["volume"], line["bucket"], line["from"], line["to"]),
    "mkdir": lambda line: records.MakeDirectory(line["volume"], line["bucket"], line["dir"]),
    "delete_dir": lambda line: records.DeleteDirectory(line["volume"], line["bucket"], line["dir"]),
    "add_acl": lambda line: records.AddAcl(*_object(line), entry_of(line["acl"])),
    "remove_acl": lambda line: records.RemoveAcl(*_object(line), entry_of(line["acl"])),
    "set_acl": lambda line: records.SetAcl(*_object(line), tuple(map(entry_of, line["acls"]))),
}


def play(plane: Plane, lines: list[Any]) -> list[Any]:
    """Play a case. Return its refusals and its lists."""
    seen: list[Any] = []
    for number, line in enumerate(lines):
        if line["op"] == "get_acl":
            seen.append({"op": number, **_list_of(plane, line)})
            continue
        if line["op"] == "upload":
            error = _upload(plane, line)
        else:
            error = plane.answer(0, plane.submit(0, _COMMANDS[line["op"]](line))).error
        if error:
            seen.append({"op": number, "error": error})
    return seen


def _list_of(plane: Plane, line: Any) -> dict[str, Any]:
    try:
        return {"acls": sorted(map(text_of, plane.metadata(0).acl(*_object(line))))}
    except PlaneError as error:
        return {"error": error.code}


def _upload(plane: Plane, line: Any) -> str:
    """Upload a key in one part. Return the code of the first refusal."""
    place = (line["volume"], line["bucket"], line["key"])
    begun = plane.answer(0, plane.submit(0, records.InitiateUpload(*place)))
    if begun.committed is None:
        return begun.error
    upload = begun.committed.upload_id
    opened = plane.answer(0, plane.submit(0, records.OpenKey(*place, 5, upload_id=upload, part_number=1)))
    if opened.committed is None:
        return opened.error
    plane.answer(0, plane.submit(0, records.CommitKey(*place, opened.committed.session, 5)))
    return plane.answer(0, plane.submit(0, records.CompleteUpload(*place, upload, (1,)))).error
