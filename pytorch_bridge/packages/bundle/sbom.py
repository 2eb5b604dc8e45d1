"""The bill of materials, in the form of SPDX 2.3."""

from __future__ import annotations

import datetime
import hashlib
import json
import re
import uuid
from collections.abc import Iterable, Mapping
from typing import Any

from .origin import Origin


def document(
    name: str,
    version: str,
    packages: Iterable[Origin],
    files: Mapping[str, tuple[str, str]],
    made_of: Mapping[str, Origin],
    leaving_out: Iterable[str],
    epoch: int,
) -> str:
    """The text for a bundle of program `name`.

    `files` have their SHA-1 and SHA-256 sums, of which SPDX wants the first; `made_of` has those
    that are a package's, and `leaving_out` names those that come after this document and name it.
    """
    ordered = sorted(set(packages), key=lambda o: (o.kind, o.name, o.version))
    ids = {o: _id(f"Package-{o.kind}-{o.name}-{o.version}") for o in ordered}
    numbers = {file: f"SPDXRef-File-{i}" for i, file in enumerate(files)}
    whole = hashlib.sha1("".join(sorted(sha1 for sha1, _ in files.values())).encode()).hexdigest()
    unique = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps([name, version, files], sort_keys=True))
    plain = re.sub(r"[^A-Za-z0-9.-]", "-", name)
    created = datetime.datetime.fromtimestamp(epoch, datetime.timezone.utc)
    root = "SPDXRef-Bundle"
    relations = [("SPDXRef-DOCUMENT", "DESCRIBES", root)]
    relations += [(root, "CONTAINS", numbers[file]) for file in files]
    relations += [(root, "DEPENDS_ON", ids[o]) for o in ordered]
    relations += [(numbers[f], "GENERATED_FROM", ids[o]) for f, o in made_of.items()]
    said: dict[str, Any] = {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": name,
        "documentNamespace": f"https://spdx.org/spdxdocs/{plain}-{unique}",
        "creationInfo": {
            "created": f"{created:%Y-%m-%dT%H:%M:%SZ}",
            "creators": ["Tool: pytorch_bridge-bundle"],
        },
        "packages": [
            {
                **_package(root, name, version, "NOASSERTION"),
                "filesAnalyzed": True,
                "packageVerificationCode": {
                    "packageVerificationCodeValue": whole,
                    "packageVerificationCodeExcludedFiles": [f"./{n}" for n in leaving_out],
                },
                "primaryPackagePurpose": "APPLICATION",
            },
            *(
                {
                    **_package(ids[o], o.name, o.version, _licence(o)),
                    "filesAnalyzed": False,
                    **_refs(o),
                }
                for o in ordered
            ),
        ],
        "files": [
            {
                "SPDXID": numbers[file],
                "fileName": f"./{file}",
                "checksums": [
                    {"algorithm": "SHA1", "checksumValue": sha1},
                    {"algorithm": "SHA256", "checksumValue": sha256},
                ],
                "licenseConcluded": "NOASSERTION",
                "licenseInfoInFiles": ["NOASSERTION"],
                "copyrightText": "NOASSERTION",
            }
            for file, (sha1, sha256) in files.items()
        ],
        "relationships": [
            {"spdxElementId": one, "relationshipType": how, "relatedSpdxElement": other}
            for one, how, other in relations
        ],
    }
    return json.dumps(said, indent=1, ensure_ascii=False) + "\n"


def _id(text: str) -> str:
    """An identifier, which may have few signs; different for different texts."""
    plain = re.sub(r"[^A-Za-z0-9.-]", "-", text)
    return f"SPDXRef-{plain}-{hashlib.sha256(text.encode()).hexdigest()[:8]}"


def _package(ref: str, name: str, version: str, licence: str) -> dict[str, Any]:
    found = {
        "SPDXID": ref,
        "name": name,
        "downloadLocation": "NOASSERTION",
        "licenseConcluded": "NOASSERTION",
        "licenseDeclared": licence,
        "copyrightText": "NOASSERTION",
    }
    return {**found, "versionInfo": version} if version else found


def _licence(origin: Origin) -> str:
    # A LicenseRef is to be explained in the document; the text is in licenses/.
    return "NOASSERTION" if "LicenseRef" in origin.licence else origin.licence or "NOASSERTION"


def _refs(origin: Origin) -> dict[str, Any]:
    if not origin.purl:
        return {}
    ref = {
        "referenceCategory": "PACKAGE-MANAGER",
        "referenceType": "purl",
        "referenceLocator": origin.purl,
    }
    return {"externalRefs": [ref]}
