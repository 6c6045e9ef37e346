"""Images of .env by their digest: `python -m scripts.local.pins [--check] [--file FILE]`.

Input: lines NAME_IMAGE=repository:tag, and the images of the container engine. Output: the same lines with
@sha256:... after the tag. Images that were not pulled from a registry have no digest.
"""

import argparse
import json
import re
import subprocess
import sys
from pathlib import Path

from scripts.local.artifacts import ROOT
from scripts.local.errors import CONFIGURATION, LocalError

FILE = ROOT / ".env"
LINE = re.compile(r"^(?P<key>[A-Z]+_IMAGE)=(?P<image>[\w./:-]+?)(?P<digest>@sha256:[0-9a-f]{64})?$", re.MULTILINE)
DIGEST = re.compile(r"(?P<repository>[\w./:-]+)@(?P<digest>sha256:[0-9a-f]{64})")


def images(text: str) -> dict[str, bool]:
    """Image without its digest -> True if it has a digest."""
    return {found["image"]: found["digest"] is not None for found in LINE.finditer(text)}


def pin(text: str) -> str:
    """The file with the digest of each image that the engine has."""
    return LINE.sub(lambda found: f"{found['key']}={found['image']}@{pulled(found['image'])}", text)


def pulled(image: str) -> str:
    """The digest of a pulled image.

    Raises:
        LocalError: there is no engine, or it does not have the image or did not pull it.
    """
    known = {found for entry in _inspect(image) if (found := DIGEST.fullmatch(entry))}
    digests = {found["digest"] for found in known if _plain(found["repository"]) == _plain(_repository(image))}
    if not digests:
        raise LocalError(
            f"{image} has no digest: it was built or loaded here. Only a pull gives it one: docker pull {image}",
            CONFIGURATION,
        )
    if len(digests) > 1:
        raise LocalError(f"{image} was pulled by more than one digest: docker image rm {image}, then docker pull it")
    return digests.pop()


def _inspect(image: str) -> list[str]:
    command = ["docker", "image", "inspect", "--format", "{{json .RepoDigests}}", image]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise LocalError(f"docker does not answer ({error}): install it, or start it", CONFIGURATION) from error
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["docker failed"])[-1][:200]
        remedy = f": docker pull {image} first" if "No such image" in reason else ""
        raise LocalError(f"{reason}{remedy}", CONFIGURATION)
    return list(json.loads(done.stdout) or [])


def _repository(image: str) -> str:
    """The name without the tag; a registry's address may have a port."""
    return re.sub(r":[\w.-]+$", "", image)


def _plain(repository: str) -> str:
    """The short form that Docker uses for names of its own registry."""
    return repository.removeprefix("docker.io/").removeprefix("library/")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="pin-images", description="Pin the images of .env to what was pulled.")
    parser.add_argument("--check", action="store_true", help="change nothing; exit 1 where an image has no digest")
    parser.add_argument("--file", type=Path, default=FILE, help="file of settings (default: .env)")
    options = parser.parse_args(arguments)
    text = options.file.read_text()
    if options.check:
        loose = [image for image, has_digest in images(text).items() if not has_digest]
        print("\n".join(f"{image} has no digest" for image in loose) or "each image has its digest")
        return 1 if loose else 0
    try:
        options.file.write_text(pin(text))
    except LocalError as fault:
        print(f"pin-images: {fault}", file=sys.stderr)
        return fault.code
    print("\n".join(found[0] for found in LINE.finditer(options.file.read_text())))
    return 0


if __name__ == "__main__":
    sys.exit(main())
