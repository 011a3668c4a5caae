"""The client that the official conformance suite drives: an McpServer with what a scenario gives.

conformance_client.py URL    with MCP_CONFORMANCE_SCENARIO and MCP_CONFORMANCE_CONTEXT
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import httpx2

from treadle.core.contracts.tool import ToolContext
from treadle.core.errors import AuthRequired, TreadleError
from treadle.tools.builtin.conversation.ask import UserQuestion
from treadle.tools.mcp import McpServer
from treadle.tools.mcp.auth.token_store import TokenStore
from treadle.tools.mcp.client_options import McpClientOptions

CLIENT_METADATA_URL = "https://conformance-test.local/client-metadata.json"
REFUSED = ("auth/resource-mismatch",)  # a client passes by not logging in


async def answer_nothing(question: UserQuestion) -> str:
    """A person who agrees to answer, and leaves every field empty."""
    return "Answer" if question.choices and question.choices[0].label == "Answer" else ""


async def make_oauth_config(scenario: str, given: dict[str, Any], url: str) -> dict[str, Any]:
    oauth: dict[str, Any] = {"clientMetadataUrl": CLIENT_METADATA_URL}
    match scenario:
        case "auth/pre-registration":
            oauth |= {"clientId": given["client_id"], "clientSecret": given["client_secret"]}
        case "auth/client-credentials-basic":
            oauth = {"grant": "client_credentials", "clientId": given["client_id"],
                     "clientSecret": given["client_secret"]}  # fmt: skip
        case "auth/client-credentials-jwt":
            oauth = {"grant": "client_credentials", "clientId": given["client_id"],
                     "privateKey": given["private_key_pem"],
                     "algorithm": given["signing_algorithm"]}  # fmt: skip
        case "auth/cross-app-access-complete-flow":
            oauth = {"grant": "identity_assertion", "clientId": given["client_id"],
                     "clientSecret": given["client_secret"], "issuer": await find_issuer(url),
                     "idpTokenEndpoint": given["idp_token_endpoint"],
                     "idpClientId": given["idp_client_id"],
                     "idpToken": given["idp_id_token"]}  # fmt: skip
    return oauth


async def find_issuer(url: str) -> str:
    """What the administrator of a company knows."""
    page = httpx2.URL(url).copy_with(path="/.well-known/oauth-protected-resource/mcp")
    async with httpx2.AsyncClient() as http:
        found = await http.get(page)
    return str(found.json()["authorization_servers"][0])


async def log_in(server: McpServer) -> None:
    """As a browser does it: open the page, follow the redirect."""
    redirect: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def show_link(url: str) -> None:
        nonlocal redirect
        redirect = asyncio.get_running_loop().create_future()
        async with httpx2.AsyncClient(follow_redirects=False) as http:
            redirect.set_result((await http.get(url)).headers["location"])

    async def read_paste() -> str:
        return await redirect

    await server.log_in(show_link, read_paste)


async def run(url: str) -> int:
    scenario = os.environ["MCP_CONFORMANCE_SCENARIO"]
    given = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT") or "{}")
    config = {"url": url, "oauth": await make_oauth_config(scenario, given, url)}
    with tempfile.TemporaryDirectory() as folder:
        options = McpClientOptions(tokens=TokenStore(Path(folder) / "logins.json"))
        server = McpServer("far", config, options=options, delays=(0.2,) * 3, required=False)
        await server.open()
        try:
            return await drive(server, scenario)
        finally:
            await server.aclose()


async def drive(server: McpServer, scenario: str) -> int:
    await server.wait_ready(60)
    if server.status.state == "login":
        try:
            await log_in(server)
        except TreadleError as error:
            print(error, file=sys.stderr)
            return 0 if scenario in REFUSED else 1
    if not await server.wait_ready(60):
        print(server.status, file=sys.stderr)
        return 1
    context = ToolContext(
        "s", "t", "c", "k", print, lambda: None, lambda _: None, services={"ask": answer_nothing}
    )
    for tool in server.tools():
        schema = tool.spec.schema["properties"]
        arguments = {name: 2 for name, field in schema.items() if field.get("type") == "number"}
        for _ in range(2):  # the second time after a login for more scopes
            try:
                print((await tool.call(arguments, context)).content)
                break
            except TreadleError as error:
                print(error, file=sys.stderr)
                if not isinstance(error, AuthRequired):
                    break
                try:
                    await log_in(server)
                except TreadleError as problem:
                    print(problem, file=sys.stderr)
                    break
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(run(sys.argv[-1])))
