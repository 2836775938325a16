"""Write a software bill of materials (CycloneDX 1.5) of the packages in a file of hashed requirements.

Usage: sbom.py REQUIREMENTS OUTPUT
"""

import json
import re
import sys
from pathlib import Path
from typing import Any


def bill(requirements: str, name: str, version: str) -> dict[str, Any]:
    """Return the bill of materials of an application with these requirements."""
    joined = requirements.replace("\\\n", " ")
    components = []
    for line in joined.splitlines():
        if found := re.match(r"([A-Za-z0-9._-]+)==([^ ;]+)", line):
            hashes = [{"alg": "SHA-256", "content": one} for one in re.findall(r"--hash=sha256:([0-9a-f]{64})", line)]
            purl = f"pkg:pypi/{found[1].lower()}@{found[2]}"
            components.append(
                {
                    "type": "library",
                    "name": found[1],
                    "version": found[2],
                    "purl": purl,
                    "bom-ref": purl,
                    "hashes": hashes,
                }
            )
    application = {"type": "application", "name": name, "version": version}
    return {
        "bomFormat": "CycloneDX", "specVersion": "1.5", "version": 1, "metadata": {"component": application},
        "components": components,
    }  # fmt: skip


if __name__ == "__main__":
    source, output = Path(sys.argv[1]), Path(sys.argv[2])
    text = (Path(__file__).parent.parent / "src" / "lmab" / "__init__.py").read_text("utf-8")
    version = re.search(r'__version__ = "([^"]+)"', text)
    assert version is not None
    output.write_text(json.dumps(bill(source.read_text("utf-8"), "lmab", version[1]), indent=1), "utf-8")
