"""Tools: functions as tools, built-in tools, MCP servers, skills, and their union."""
