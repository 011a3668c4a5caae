"""What an environment has for a cloud, in one line: the credentials, or what is missing and the
command that mends it. For `treadle models` and `treadle doctor`; it opens no connection."""

from __future__ import annotations

from collections.abc import Mapping

from treadle.core.errors import ConfigError
from treadle.models.cloud import aws, azure, google


def describe_cloud(name: str, environ: Mapping[str, str]) -> tuple[bool, str, bool]:
    """Whether the models of this cloud can be asked, the line, and whether the line is about
    credentials that are set, but not whole or not readable."""
    describe = {"bedrock": _describe_aws, "vertex": _describe_google, "azure": _describe_azure}
    try:
        return describe[name](environ)
    except ConfigError as error:
        return False, str(error), True


def _describe_aws(environ: Mapping[str, str]) -> tuple[bool, str, bool]:
    source, region = aws.find_source(environ), aws.find_region(environ)
    if source is None:
        remedy = f"set {aws.BEARER_VARIABLE}, or run `aws configure`"
        return _describe_gap(aws.describe_gap(environ), remedy)
    if not region:
        return False, f"{source.summary}, but no region: export AWS_REGION=us-east-1", False
    return True, f"{source.summary}, {region}", False


def _describe_google(environ: Mapping[str, str]) -> tuple[bool, str, bool]:
    source = google.find_source(environ)
    if source is None:
        return _describe_gap("", f"run `{google.LOGIN_COMMAND}`")
    project = google.find_project(environ)
    if not project:
        return False, f"{source.summary}, but no project: export GOOGLE_CLOUD_PROJECT=NAME", False
    return True, f"{source.summary}, {project}, {google.find_location(environ)}", False


def _describe_azure(environ: Mapping[str, str]) -> tuple[bool, str, bool]:
    source = azure.find_source(environ)
    if source is None:
        remedy = f"set AZURE_OPENAI_API_KEY, or run `{azure.LOGIN_COMMAND}`"
        return _describe_gap(azure.describe_gap(environ), remedy)
    if not environ.get("AZURE_OPENAI_ENDPOINT", "").strip():
        address = "export AZURE_OPENAI_ENDPOINT=https://NAME.openai.azure.com"
        return False, f"{source.summary}, but no address: {address}", False
    return True, source.summary, False


def _describe_gap(gap: str, remedy: str) -> tuple[bool, str, bool]:
    return False, f"{gap}: {remedy}" if gap else remedy, bool(gap)
