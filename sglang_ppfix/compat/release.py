"""Which SGLang is installed, and which releases the plugin was tested with."""

from importlib import metadata

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

DISTRIBUTION = "sglang-ppfix"
EXTRA = "sglang"

#: The first release that loads plugins (``sglang.srt.plugins``).
FIRST_WITH_PLUGINS = Version("0.5.11")


def supported_range() -> SpecifierSet:
    """The range in the extra ``sglang`` of our own metadata: stated once, there."""
    for line in metadata.requires(DISTRIBUTION) or ():
        requirement = Requirement(line)
        marker = requirement.marker
        if (
            requirement.name == "sglang"
            and marker
            and marker.evaluate({"extra": EXTRA})
        ):
            return requirement.specifier
    raise RuntimeError(f"{DISTRIBUTION} declares no range in its extra {EXTRA!r}")


def installed_release() -> Version | None:
    """Release of the installed SGLang; None where there is none.

    Raises:
        ValueError: the distribution carries a version that PEP 440 does not know.
    """
    try:
        text = metadata.version("sglang")
    except metadata.PackageNotFoundError:
        return None
    try:
        return Version(text)
    except InvalidVersion as error:
        raise ValueError(f"sglang has the version {text!r}: {error}") from error


def is_supported(release: Version) -> bool:
    """Whether a release is in the tested range; post releases and local builds are."""
    return supported_range().contains(release.public, prereleases=True)
