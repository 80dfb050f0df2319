"""What ``stagecraft lint`` does: read the files, check, show."""

from __future__ import annotations

import pathlib

from stagecraft.pipeline.cli import console
from stagecraft.pipeline.kubeflow.linter import Finding, check
from stagecraft.schemas.errors import UserError


def show(files: tuple[str, ...], *, as_json: bool) -> int:
    """Checks and shows; the command's exit code."""
    try:
        texts = {file: _read(file) for file in files}
    except UserError as error:
        if as_json:
            console.say_json({"error": str(error)})
        console.error(str(error))
        return 1
    findings = {file: check(text) for file, text in texts.items()}
    for file, found in findings.items():
        for finding in found:
            console.say(_paragraph(file, finding) + "\n", stderr=as_json)
    console.say(_summary(findings), stderr=as_json)
    accepted = not any(findings.values())
    if as_json:
        console.say_json(
            {
                "accepted": accepted,
                "files": {
                    file: [finding.json() for finding in found] for file, found in findings.items()
                },
            }
        )
    return 0 if accepted else 1


def _read(file: str) -> str:
    try:
        return pathlib.Path(file).read_text(encoding="utf-8")
    except OSError as error:
        raise UserError(
            f"{file}: cannot be read ({error.strerror}); name a compiled pipeline, such as "
            "pipeline.yaml"
        ) from error
    except UnicodeDecodeError as error:
        raise UserError(
            f"{file}: is no text; name the compiled YAML itself, and not an archive of it"
        ) from error


def _paragraph(file: str, finding: Finding) -> str:
    return (
        f"{file}: {finding.location} ({finding.rule})\n"
        f"  {finding.problem}\n"
        f"  {finding.remedy}\n"
        f"  {finding.source}"
    )


def _summary(findings: dict[str, list[Finding]]) -> str:
    total = sum(map(len, findings.values()))
    if not total:
        return f"accepted: {', '.join(findings)}"
    refused = [file for file, found in findings.items() if found]
    return f"{total} finding{'s' if total > 1 else ''} in {', '.join(refused)}"
