"""Logins to MCP servers: OAuth, the page in the browser, and the stored tokens."""
