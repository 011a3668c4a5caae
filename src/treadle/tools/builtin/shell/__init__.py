"""bash, and the tools that read and stop its background tasks."""
