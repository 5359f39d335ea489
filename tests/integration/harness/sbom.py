"""What deploy/make-sbom writes of files that were built here."""

import json
import pathlib
import subprocess

REPO = pathlib.Path(__file__).resolve().parents[3]


def make(folder, build, *files):
    """{file's package: {relationship: {names}}} of an SBOM that is valid, and its packages by name."""
    from spdx_tools.spdx.parser.parse_anything import parse_file
    from spdx_tools.spdx.validation.document_validator import validate_full_spdx_document

    path = folder / "sbom.spdx.json"
    done = subprocess.run([REPO / "deploy/make-sbom", "--build", build, "--out", path, *files], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert [m.validation_message for m in validate_full_spdx_document(parse_file(str(path)))] == []
    document = json.loads(path.read_text())
    packages = {p["SPDXID"]: p for p in document["packages"]}
    found = {packages[r["relatedSpdxElement"]]["name"]: {} for r in document["relationships"] if r["relationshipType"] == "DESCRIBES"}
    for each in document["relationships"]:
        what, ends = each["relationshipType"], [each["spdxElementId"], each["relatedSpdxElement"]]
        if what == "DESCRIBES":
            continue
        own, other = (packages[end]["name"] for end in (reversed(ends) if what == "BUILD_DEPENDENCY_OF" else ends))
        found[own].setdefault(what, set()).add(other)
    return found, {p["name"]: p for p in document["packages"]}
