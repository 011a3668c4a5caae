"""web_fetch: fetch a page and convert it to Markdown."""
